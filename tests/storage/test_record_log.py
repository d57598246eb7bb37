"""Every implementation of the record log through the one suite."""

from tests.storage.record_log_suite import RecordLogSuite


class TestRecordLog(RecordLogSuite):
    """The fixture `record_log` names the implementations."""
