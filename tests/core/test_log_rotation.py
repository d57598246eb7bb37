"""Logs of `sharequeue up` keep below a limit, and their writers go on with the same open file."""

from pathlib import Path

from sharequeue.stack.process import rotate_log


def test_a_log_above_its_limit_begins_again_and_one_older_log_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "gateway.log"
    with file.open("ab") as log:
        for round_ in ("first", "second"):
            log.write(f"{round_}\n".encode() * 200)
            log.flush()
            rotate_log(file, most_bytes=1000)
            assert file.read_bytes() == b""
            assert (tmp_path / "gateway.log.1").read_bytes() == f"{round_}\n".encode() * 200
        log.write(b"next\n")
    assert file.read_bytes() == b"next\n", "the writer appends, so no hole is left"
    assert (tmp_path / "gateway.log.1").stat().st_mode & 0o777 == 0o600


def test_a_short_log_stays(tmp_path: Path) -> None:
    file = tmp_path / "gateway.log"
    rotate_log(file, most_bytes=1000)
    file.write_bytes(b"short\n")
    rotate_log(file, most_bytes=1000)
    assert file.read_bytes() == b"short\n"
    assert not (tmp_path / "gateway.log.1").exists()
