"""The whole contract, over the double: what a fake promises has to be what the service does."""

from tests.contract.test_creation import *  # noqa: F403
from tests.contract.test_live import *  # noqa: F403
from tests.contract.test_reads import *  # noqa: F403
from tests.contract.test_service import *  # noqa: F403
from tests.contract.test_states import *  # noqa: F403
from tests.contract.test_uploads import *  # noqa: F403
