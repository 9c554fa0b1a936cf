"""The methods of both clients for rules of alarms, destinations and alarms."""

from msgspec import UNSET, UnsetType

from . import _alarm_flows
from ._alarm_values import AddedDestination, Alarm, AlarmDelivery, AlarmRule, Destination, RuleTrial
from ._both import Calls, Result, Results, both
from ._list_values import LONGEST_PAGE, AlarmPage, all_pages, list_query
from ._times import Time


class AlarmCalls(Calls):
    """Methods for alarms, with the project key."""

    @both
    def alarm_rules(self, *, timeout: float | None = None) -> Result[tuple[AlarmRule, ...]]:
        """Return the project's rules of alarms, by name.

        Args:
            timeout: seconds for the whole call; no limit by default.

        Raises:
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_alarm_flows.rules(self._key), timeout)

    @both
    def add_alarm_rule(self, rule: AlarmRule, *, timeout: float | None = None) -> Result[AlarmRule]:
        """Add a rule; it holds from the next window on. It is retried only if nothing was done.

        Args:
            timeout: seconds for the whole call; no limit by default.

        Returns:
            The rule with its id.

        Raises:
            AlarmConflict: the project has a rule of this name, or is at its limit.
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_alarm_flows.add_rule(self._key, rule), timeout)

    @both
    def change_alarm_rule(self, rule: AlarmRule, *, timeout: float | None = None) -> Result[AlarmRule]:
        """Replace the rule that has the `id` of this one.

        Args:
            timeout: seconds for the whole call; no limit by default.

        Raises:
            AlarmConflict: the project has another rule of this name.
            AlarmNotFound: the project has no such rule.
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_alarm_flows.change_rule(self._key, rule), timeout)

    @both
    def delete_alarm_rule(self, rule_id: str, *, timeout: float | None = None) -> Result[None]:
        """Delete a rule; its alarms stay. A missing rule is not an error.

        Args:
            timeout: seconds for the whole call; no limit by default.

        Raises:
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_alarm_flows.delete(self._key, "alarm_rules", rule_id), timeout)

    @both
    def test_alarm_rule(
        self, rule: AlarmRule, day: str | None = None, offset_minutes: int = 0, *, timeout: float | None = None
    ) -> Result[RuleTrial]:
        """Return the alarms that a rule would have made on a day, without storing it.

        Args:
            day: `YYYY-MM-DD`; today by default.
            offset_minutes: how far the clock of the day is ahead of UTC.
            timeout: seconds for the whole call; no limit by default.

        Raises:
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_alarm_flows.test_rule(self._key, rule, day, offset_minutes), timeout)

    @both
    def destinations(self, *, timeout: float | None = None) -> Result[tuple[Destination, ...]]:
        """Return where the project's alarms can be sent, by name.

        Args:
            timeout: seconds for the whole call; no limit by default.

        Raises:
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_alarm_flows.destinations(self._key), timeout)

    @both
    def add_destination(
        self, destination: Destination, password: str | None = None, *, timeout: float | None = None
    ) -> Result[AddedDestination]:
        """Add a destination. It is retried only if nothing was done.

        Args:
            password: a password or token; it is never shown again.
            timeout: seconds for the whole call; no limit by default.

        Returns:
            The destination with its id, and for a webhook the secret of its signatures, which is shown once.

        Raises:
            AlarmConflict: the project has a destination of this name, or is at its limit.
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_alarm_flows.add_destination(self._key, destination, password), timeout)

    @both
    def change_destination(
        self, destination: Destination, password: str | UnsetType | None = UNSET, *, timeout: float | None = None
    ) -> Result[Destination]:
        """Replace the destination that has the `id` of this one; its kind and its secret stay.

        Args:
            password: another password or token; None for none. By default it stays as long as URL and user do.
            timeout: seconds for the whole call; no limit by default.

        Raises:
            AlarmConflict: the project has another destination of this name.
            AlarmNotFound: the project has no such destination.
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        given = {} if isinstance(password, UnsetType) else {"password": password}
        return self._run(_alarm_flows.change_destination(self._key, destination, given), timeout)

    @both
    def delete_destination(self, destination_id: str, *, timeout: float | None = None) -> Result[None]:
        """Delete a destination. A missing one is not an error.

        Args:
            timeout: seconds for the whole call; no limit by default.

        Raises:
            AlarmConflict: a rule sends to it.
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_alarm_flows.delete(self._key, "destinations", destination_id), timeout)

    @both
    def rotate_destination(self, destination_id: str, *, timeout: float | None = None) -> Result[str]:
        """Give a webhook a new secret, and return it; the old one signs too for 24 hours.

        It is retried only if nothing was done.

        Args:
            timeout: seconds for the whole call; no limit by default.

        Raises:
            AlarmConflict: too many old secrets still sign.
            AlarmNotFound: the project has no such destination.
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_alarm_flows.rotate(self._key, destination_id), timeout)

    @both
    def test_destination(self, destination_id: str, *, timeout: float | None = None) -> Result[AlarmDelivery]:
        """Send a test message to a destination once, and return what became of it.

        Args:
            timeout: seconds for the whole call; no limit by default.

        Raises:
            AlarmNotFound: the project has no such destination.
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_alarm_flows.test_destination(self._key, destination_id), timeout)

    @both
    def list_alarms(
        self,
        token: str | None = None,
        *,
        since: Time | None = None,
        until: Time | None = None,
        count: int | None = None,
        timeout: float | None = None,
    ) -> Result[AlarmPage]:
        """Read a page of the project's alarms, newest first.

        Args:
            token: the token from the previous page, which includes its filters; by default the first page is read.
            since: made at or after this time, a `datetime` or text in ISO 8601.
            until: made before this time.
            count: the most alarms to return, 1 to 200; 50 by default.
            timeout: seconds for the whole call; no limit by default.

        Raises:
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_alarm_flows.listing(self._key, list_query(token, None, since, until, count)), timeout)

    @both
    def alarms(
        self, *, since: Time | None = None, until: Time | None = None, timeout: float | None = None
    ) -> Results[Alarm]:
        """Yield all of the project's alarms, newest first, page by page. `project_live` has new ones as they are made.

        Args:
            since: made at or after this time, a `datetime` or text in ISO 8601.
            until: made before this time.
            timeout: seconds for all of them together; no limit by default.

        Raises:
            IncompleteList: a node did not answer; the other nodes' alarms were yielded before.
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._items(
            all_pages(
                lambda token: _alarm_flows.listing(self._key, list_query(token, None, since, until, LONGEST_PAGE))
            ),
            timeout,
        )

    @both
    def mark_alarm(
        self, session_id: str, sequence: int, *, false: bool = True, timeout: float | None = None
    ) -> Result[Alarm]:
        """Say that an alarm was false, or that it was not.

        Args:
            false: nothing was there.
            timeout: seconds for the whole call; no limit by default.

        Raises:
            AlarmNotFound: the project has no such alarm.
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_alarm_flows.judge(self._key, session_id, sequence, false), timeout)

    @both
    def send_alarm_again(
        self, session_id: str, sequence: int, destination_id: str, *, timeout: float | None = None
    ) -> Result[Alarm]:
        """Send an alarm again to one of its destinations. It is retried only if nothing was done.

        Args:
            timeout: seconds for the whole call; no limit by default.

        Raises:
            AlarmNotFound: the project has no such alarm, or it was not sent there.
            WrongKey: the service does not know the project key.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused.
        """
        return self._run(_alarm_flows.send_again(self._key, session_id, sequence, destination_id), timeout)
