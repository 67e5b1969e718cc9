import pytest

import fopng.lab.data.download
import web
from fopng.lab.data.download import download
from fopng.lab.data.errors import DataError

DATA = bytes(range(256)) * 2000


@pytest.fixture
def site():
    with web.serve({"file": DATA, "empty": b""}) as (site, address):
        site.url = f"{address}/file"
        site.address = address
        yield site


def test_a_file_arrives_with_progress(site, tmp_path):
    seen = []
    download(site.url, tmp_path / "deep" / "file", report=lambda *progress: seen.append(progress))
    assert (tmp_path / "deep" / "file").read_bytes() == DATA
    assert seen[0] == ("file", 0, len(DATA))
    assert seen[-1] == ("file", len(DATA), len(DATA))
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


def test_an_empty_file(site, tmp_path):
    download(f"{site.address}/empty", tmp_path / "empty")
    assert (tmp_path / "empty").read_bytes() == b""


def test_a_slow_server_is_waited_for(site, tmp_path):
    site.delay = 0.02
    download(site.url, tmp_path / "file", timeout=1.0)
    assert (tmp_path / "file").read_bytes() == DATA


@pytest.mark.parametrize("ranges", [True, False])
def test_a_connection_that_is_cut_is_taken_up_again(site, tmp_path, ranges):
    site.cuts, site.ranges = 1, ranges
    download(site.url, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == DATA
    assert site.requests == [("file", None), ("file", f"bytes={len(DATA) // 2}-")]


def test_an_earlier_run_is_taken_up_again(site, tmp_path):
    (tmp_path / "file.part").write_bytes(DATA[:1000])
    download(site.url, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == DATA
    assert site.requests == [("file", "bytes=1000-")]


def test_a_part_longer_than_the_file_is_thrown_away(site, tmp_path):
    (tmp_path / "file.part").write_bytes(DATA + b"more")
    download(site.url, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == DATA


def test_a_server_that_always_cuts_keeps_the_part_for_later(site, tmp_path):
    site.cuts = 100
    with pytest.raises(DataError, match=r"got [\d,]+ of 512,000 bytes. Run the command again"):
        download(site.url, tmp_path / "file")
    assert not (tmp_path / "file").exists()
    site.cuts = 0
    download(site.url, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == DATA


def test_a_server_that_stands_still_is_left(site, tmp_path):
    site.stall = 5.0
    with pytest.raises(DataError, match="timed out"):
        download(site.url, tmp_path / "file", timeout=0.1)
    assert not (tmp_path / "file").exists()


def test_the_wrong_part_is_refused(site, tmp_path):
    site.wrong_range = True
    (tmp_path / "file.part").write_bytes(DATA[:1000])
    with pytest.raises(DataError, match="Expected the bytes from 1000 on, got 'bytes 1001-"):
        download(site.url, tmp_path / "file")


def test_a_file_without_end(site, tmp_path, monkeypatch):
    monkeypatch.setattr(fopng.lab.data.download, "LARGEST", 3_000_000)
    site.endless = True
    with pytest.raises(DataError, match="at most 3,000,000 bytes, got more"):
        download(site.url, tmp_path / "file")


@pytest.mark.parametrize(("status", "message"), [(None, "HTTP 404 Not Found"), (503, "HTTP 503 Service Unavailable")])
def test_refusals_of_the_server(site, tmp_path, status, message):
    site.status = status
    with pytest.raises(DataError, match=message):
        download(f"{site.address}/nothing", tmp_path / "nothing")
    assert len(site.requests) == 1


def test_nothing_listens(tmp_path):
    with pytest.raises(DataError, match="Connection refused"):
        download(f"{web.unused_address()}/file", tmp_path / "file")
