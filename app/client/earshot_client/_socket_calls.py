"""The method of both clients that opens a live socket."""

from __future__ import annotations

from typing import cast

from ._both import Calls, Sockets, both
from ._session_values import MICROPHONE, SessionOptions
from ._socket_state import PATIENCE, SocketWish


class SocketCalls(Calls):
    """How a client opens live sockets."""

    @both
    def socket(
        self,
        session: SessionOptions | str = MICROPHONE,
        *,
        events: tuple[str, ...] = ("window",),
        after: str | None = None,
        listen: bool = False,
        patience: float = PATIENCE,
        timeout: float | None = None,
    ) -> Sockets:
        """Return a live socket: audio in and events out over one connection, made again whenever it breaks.

        It connects when it is entered, by `with` or `async with`; its class says what it does then.

        Args:
            session: options of a new session of the kind `stream`, by default raw PCM of 16 kHz, 16 bits, one channel;
                or the id of one that exists.
            events: which ones are wanted, of `window`, `sound.started`, `sound.ended`, `level`, `session`; none at all
                for audio only.
            after: begin behind this cursor of the session; `start` for all its events. By default with what comes next.
            listen: only hear a session that exists.
            patience: seconds without a connection after which a socket that was open gives up. The first connection is
                tried six times.
            timeout: seconds that the socket may be open; no limit by default.

        Raises:
            ValueError: a new session cannot be listened to.
            DeadlineExceeded, ServiceUnreachable, ServiceBusy, RequestRefused: when the socket is entered and used.
        """
        if listen and not isinstance(session, str):
            raise ValueError("listen: give the id of a session")
        wish = SocketWish(self._key, session, tuple(events), after, listen, patience)
        return cast("Sockets", self._connection.socket(wish, timeout))
