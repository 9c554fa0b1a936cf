"""The intake of jobs: folds commands into heads, acceptances and part rows, and resolves the verdicts."""

from streams.folding.command_intake import Intake, put_audio
from streams.folding.draft import Draft
from topics import keys, record_codec, rows
from topics.folding import Arrival
from topics.jobs import rules
from topics.jobs.records import Accepted, JobCommand, Overdue, Part
from topics.jobs.rules import JobHead, JobState


class JobIntake(Intake[JobHead, JobCommand]):
    """Folds the job command topic. Loop only."""

    decode = staticmethod(record_codec.decode_job_command)
    step = staticmethod(rules.fold_command)

    def write_again(self, draft: Draft[JobHead], id: str, head: JobHead, command: JobCommand, arrival: Arrival) -> None:
        """Rewrite a part that will be read, or the acceptance, if it belongs to the upload that counts.

        Also release audio that is no longer kept, because the head may be ahead of this command.
        """
        match command:
            case Part(upload=head.upload) if command.number in head.audio and head.needs_audio:
                put_audio(draft, id, command.number, arrival.row_of(command.data))
            case Overdue() if head.state is JobState.COMPLETED and not head.keeps_audio:
                self.drop_audio(draft, id, head, head.audio)
            case Accepted(upload=head.upload) if head.visible or head.unbilled:
                draft.put(draft.store.row_key(id, keys.REQUEST), rows.encode(command))
