import hashlib
import multiprocessing
import threading

import numpy as np
import pytest

import fopng.lab.data.fetch
import tiny
import web
from fopng.lab.data.cache import arrays_folder, cache_folder, locked, open_arrays
from fopng.lab.data.catalog import Dataset, Layout, Source
from fopng.lab.data.errors import BadFileError, FetchError
from fopng.lab.data.fetch import fetch
from fopng.lab.data.formats import PARTS, Idx
from fopng.lab.data.library import own_files
from fopng.lab.data.status import status, verify

pytestmark = pytest.mark.usefixtures("empty_machine")

MADE = tiny.arrays()
GOOD = tiny.zipped(tiny.idx_files(MADE))
OTHER = tiny.zipped(tiny.idx_files(tiny.arrays(seed=1)))
FILES = tuple(GOOD)


def tiny_from(*addresses, files=FILES, layouts=None):
    return tiny.dataset(MADE, layouts=layouts, sources=tuple(Source(address, files) for address in addresses))


def is_in_the_cache(dataset):
    arrays = open_arrays(dataset.name, dataset.contents)
    return arrays is not None and all(np.array_equal(arrays[part], MADE[part]) for part in PARTS)


def refusal(dataset, **options):
    with pytest.raises(FetchError) as caught:
        fetch(dataset, **options)
    assert not arrays_folder(dataset.name).exists()
    return str(caught.value)


def leftovers():
    return {path.name for path in cache_folder().iterdir()} - {"arrays", "locks"}


def test_a_good_mirror_fills_the_cache_once():
    with web.serve(GOOD) as (site, address):
        dataset = tiny_from(address)
        assert fetch(dataset) == address
        assert fetch(dataset) == "already here"
        assert len(site.requests) == len(FILES)
        assert fetch(dataset, again=True) == address
    assert is_in_the_cache(dataset)
    assert list((cache_folder() / "downloads").iterdir()) == []


def test_files_on_this_machine_come_first(tmp_path):
    tiny.write(tmp_path / "own", GOOD)
    dataset = tiny_from(web.unused_address())
    assert fetch(dataset, data_dir=tmp_path / "own") == "found on this machine"
    assert is_in_the_cache(dataset)


def test_a_connection_that_is_cut_is_tried_again_and_a_file_is_whole_or_not_there():
    with web.serve(GOOD) as (site, address):
        dataset = tiny_from(address)
        site.delay, site.cuts = 0.002, 2
        assert fetch(dataset) == address
        site.cuts = 1_000
        assert "the connection ended early, 3 times" in refusal(dataset, again=True)
        assert not [path for path in cache_folder().rglob("*") if path.is_file() and path.suffix == ".gz"]


def test_a_server_that_stands_still_or_never_ends_is_left(monkeypatch):
    monkeypatch.setattr(fopng.lab.data.fetch, "SECONDS", 0.2)
    monkeypatch.setattr(fopng.lab.data.fetch, "LARGEST", 3_000_000)
    with web.serve(GOOD) as (site, address):
        site.stall = 2.0
        assert "no answer within 0.2 seconds" in refusal(tiny_from(address))
        site.stall, site.endless = 0.0, True
        assert "at most 3,000,000 bytes, got more" in refusal(tiny_from(address))


def changed_labels():
    """A file of the right size and kind with one byte changed."""
    files = tiny.idx_files(MADE)
    name = "train-labels-idx1-ubyte"
    return tiny.zipped({**files, name: tiny.flipped(files[name], len(files[name]) - 1, 1)})


@pytest.mark.parametrize(
    ("files", "message"),
    [
        pytest.param(OTHER, "refused: Expected the known train-images, got other contents", id="a wrong file"),
        pytest.param(changed_labels(), "Expected the known train-labels, got other contents", id="one byte changed"),
        pytest.param(
            {**GOOD, FILES[1]: tiny.flipped(GOOD[FILES[1]], 20, 1)}, "Expected whole files", id="damaged gzip"
        ),
        pytest.param(dict.fromkeys(FILES, b"<html>sorry</html>"), "Not a gzipped file", id="a page instead"),
        pytest.param({**GOOD, FILES[0]: GOOD[FILES[1]]}, "Expected", id="mislabelled"),
        pytest.param({}, "404 Client Error: Not Found", id="nothing at all"),
    ],
)
def test_a_bad_mirror_is_refused_with_its_reason_and_the_next_one_tried(files, message):
    with web.serve(files) as (_, bad):
        text = refusal(tiny_from(bad))
        assert message in text
        assert f"  {bad}: " in text
        with web.serve(GOOD) as (_, good):
            dataset = tiny_from(bad, good)
            assert fetch(dataset) == good
    assert is_in_the_cache(dataset)


def test_an_archive():
    layouts = (Layout(Idx(), ("tiny",), "tiny.tar.gz"),)
    with web.serve({"tiny.tar.gz": tiny.tar_bytes(tiny.idx_files(MADE), "tiny/")}) as (_, address):
        dataset = tiny_from(address, files=("tiny.tar.gz",), layouts=layouts)
        assert fetch(dataset) == address
    assert is_in_the_cache(dataset)


def test_when_nothing_works_the_message_says_what_to_do_and_that_works(tmp_path):
    nowhere, also_nowhere = web.unused_address(), web.unused_address()
    dataset = tiny_from(nowhere, also_nowhere)
    text = refusal(dataset)
    assert "Expected tiny from one of 2 sources" in text
    assert f"  {nowhere}: train-images-idx3-ubyte.gz: no connection" in text
    assert f"  {also_nowhere}: " in text
    assert str(tmp_path / "cache" / "tiny") in text
    assert ", ".join(name.removesuffix(".gz") for name in FILES) in text
    tiny.write(tmp_path / "cache" / "tiny", GOOD)
    assert fetch(dataset) == "found on this machine"


def test_a_mirror_of_ones_own_comes_first():
    with web.serve(GOOD) as (_, address):
        assert fetch(tiny_from(web.unused_address()), mirror=address) == address


def test_progress_and_waiting_for_another_process_are_reported():
    seen, held, released = [], threading.Event(), threading.Event()

    def hold():
        with locked("tiny"):
            held.set()
            released.wait(10)

    def report(file, done, total):
        seen.append((file, done, total))
        released.set()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(10)
    with web.serve(GOOD) as (_, address):
        fetch(tiny_from(address), report=report)
    holder.join()
    assert seen[0] == ("waiting for another process", 0, None)
    assert (FILES[0], len(GOOD[FILES[0]]), len(GOOD[FILES[0]])) in seen


def fetch_in_a_process(address, barrier, sources):
    barrier.wait()
    sources.put(fetch(tiny_from(address)))


def test_two_processes_at_once_download_once():
    context = multiprocessing.get_context("spawn")
    barrier, sources = context.Barrier(2), context.Queue()
    with web.serve(GOOD) as (site, address):
        site.delay = 0.01
        both = [context.Process(target=fetch_in_a_process, args=(address, barrier, sources)) for _ in range(2)]
        for process in both:
            process.start()
        for process in both:
            process.join(60)
        assert [process.exitcode for process in both] == [0, 0]
        assert sorted([sources.get(timeout=5), sources.get(timeout=5)]) == ["already here", address]
        assert len(site.requests) == len(FILES)


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("FOPNG_CACHE", str(tmp_path / "file" / "cache"))
    with web.serve(GOOD) as (_, address), pytest.warns(UserWarning, match="set FOPNG_CACHE to one"):
        assert "Not a directory" in refusal(tiny_from(address))


class TestOwnFiles:
    DATA = b"1,2\n3,4\n"
    HASH = f"sha256:{hashlib.sha256(DATA).hexdigest()}"

    def dataset(self, *addresses):
        sources = tuple(Source(address, ("mine.csv",)) for address in addresses)
        return Dataset("mine", lambda files: None, {"mine.csv": self.HASH}, sources)

    def test_they_are_fetched_checked_and_found(self, tmp_path):
        with web.serve({"mine.csv": b"other"}) as (_, bad), web.serve({"mine.csv": self.DATA}) as (_, good):
            assert "mine.csv" in refusal(self.dataset(bad))
            dataset = self.dataset(bad, good)
            assert status(dataset).state == "missing"
            assert fetch(dataset) == good
            assert fetch(dataset) == "already here"
        assert own_files(dataset) == {"mine.csv": tmp_path / "cache" / "mine" / "mine.csv"}
        assert status(dataset).state == "files"
        assert [check.problem for check in verify(dataset)] == [None]

    def test_other_contents_are_refused(self, tmp_path):
        tiny.write(tmp_path / "own", {"mine.csv": b"other"})
        with pytest.raises(BadFileError, match="got other contents"):
            own_files(self.dataset(), tmp_path / "own")
        assert status(self.dataset(), tmp_path / "own").state == "other contents"
        assert "got other contents" in verify(self.dataset(), tmp_path / "own")[0].problem
