"""The drivers of the contract tests."""

from tests.contract.conftest import api as api
from tests.contract.conftest import jobs as jobs
