import multiprocessing
import threading

import numpy as np
import pytest

import tiny
import web
from fopng.lab.data.cache import arrays_folder, downloads_folder, locked, open_arrays
from fopng.lab.data.contents import PARTS
from fopng.lab.data.errors import FetchError
from fopng.lab.data.fetching import fetch
from fopng.lab.data.idx import Idx
from fopng.lab.data.layouts import ArchiveLayout, FolderLayout
from fopng.lab.data.sources import Mirror

pytestmark = pytest.mark.usefixtures("empty_machine")

MADE = tiny.arrays()
GOOD = tiny.zipped(tiny.idx_files(MADE))
OTHER = tiny.zipped(tiny.idx_files(tiny.arrays(seed=1)))
FILES = tuple(GOOD)


def mirror(address, timeout=2.0):
    return Mirror(address, FILES, FolderLayout(Idx()), timeout)


def tiny_from(*sources):
    return tiny.dataset(MADE, sources=sources)


def is_in_the_cache(dataset):
    arrays = open_arrays(dataset.name, dataset.contents)
    return arrays is not None and all(np.array_equal(arrays[part], MADE[part]) for part in PARTS)


def refusal(dataset):
    with pytest.raises(FetchError) as caught:
        fetch(dataset)
    assert not arrays_folder(dataset.name).exists()
    return str(caught.value)


def test_a_good_mirror_fills_the_cache_and_leaves_nothing_else():
    with web.serve(GOOD) as (_, address):
        dataset = tiny_from(mirror(address))
        assert fetch(dataset) == address
    assert is_in_the_cache(dataset)
    assert not downloads_folder(dataset.name).exists()
    assert sorted(path.name for path in arrays_folder(dataset.name).parent.iterdir()) == ["tiny"]


def test_what_is_here_is_not_fetched_again():
    with web.serve(GOOD) as (site, address):
        dataset = tiny_from(mirror(address))
        fetch(dataset)
        assert fetch(dataset) == "already here"
        assert len(site.requests) == len(FILES)
        assert fetch(dataset, again=True) == address


def test_files_on_this_machine_come_first(tmp_path):
    tiny.write(tmp_path / "own", GOOD)
    dataset = tiny_from(mirror(web.unused_address()))
    assert fetch(dataset, data_dir=tmp_path / "own") == "found on this machine"
    assert is_in_the_cache(dataset)


def test_slow_and_cut_off_is_good_in_the_end():
    with web.serve(GOOD) as (site, address):
        site.delay, site.cuts = 0.005, 2
        dataset = tiny_from(mirror(address))
        fetch(dataset)
    assert is_in_the_cache(dataset)


def test_a_fetch_that_failed_half_way_goes_on_there():
    with web.serve(GOOD) as (site, address):
        dataset = tiny_from(mirror(address))
        site.cuts = 1_000
        assert "of " in refusal(dataset)
        site.cuts = 0
        site.requests.clear()
        fetch(dataset)
        assert site.requests[0][1] is not None
    assert is_in_the_cache(dataset)


def test_a_part_of_another_file_is_fetched_anew():
    """What was left of an earlier download does not fit: the digest says so, and the file is taken whole."""
    with web.serve(OTHER) as (site, address):
        dataset = tiny_from(mirror(address))
        site.cuts = 1_000
        refusal(dataset)
        site.files, site.cuts = GOOD, 0
        assert fetch(dataset) == address
    assert is_in_the_cache(dataset)


def changed_labels():
    """A file of the right size and kind with one byte changed."""
    files = tiny.idx_files(MADE)
    name = "train-labels-idx1-ubyte"
    return tiny.zipped({**files, name: tiny.flipped(files[name], len(files[name]) - 1, 1)})


@pytest.mark.parametrize(
    ("files", "message"),
    [
        pytest.param(OTHER, "refused, Expected the known train-images, got other contents", id="a wrong file"),
        pytest.param(changed_labels(), "Expected the known train-labels, got other contents", id="one byte changed"),
        pytest.param(
            {**GOOD, FILES[1]: tiny.flipped(GOOD[FILES[1]], 20, 1)}, "Expected a whole gzip file", id="damaged gzip"
        ),
        pytest.param(dict.fromkeys(FILES, b"<html>sorry</html>"), "Not a gzipped file", id="a page instead"),
        pytest.param({**GOOD, FILES[0]: GOOD[FILES[1]]}, "Expected", id="mislabelled"),
        pytest.param({}, "HTTP 404 Not Found", id="nothing at all"),
    ],
)
def test_a_bad_mirror_is_refused_with_its_reason_and_the_next_one_tried(files, message):
    with web.serve(files) as (_, bad):
        text = refusal(tiny_from(mirror(bad)))
        assert message in text
        assert f"  {bad}: " in text
        with web.serve(GOOD) as (_, good):
            dataset = tiny_from(mirror(bad), mirror(good))
            assert fetch(dataset) == good
    assert is_in_the_cache(dataset)


def test_an_archive_that_climbs_out(tmp_path):
    layout = ArchiveLayout(Idx(), "tiny.tar.gz", "tiny/")
    evil = tiny.tar_bytes({**{f"tiny/{name}": data for name, data in tiny.idx_files(MADE).items()}, "../evil": b"x"})
    with web.serve({"tiny.tar.gz": evil}) as (_, address):
        text = refusal(tiny.dataset(MADE, layouts=(layout,), sources=(Mirror(address, ("tiny.tar.gz",), layout),)))
    assert "got '../evil'" in text
    assert not list(tmp_path.rglob("evil"))


def test_a_good_archive():
    layout = ArchiveLayout(Idx(), "tiny.tar.gz", "tiny/")
    with web.serve({"tiny.tar.gz": tiny.tar_bytes(tiny.idx_files(MADE), "tiny/")}) as (_, address):
        dataset = tiny.dataset(MADE, layouts=(layout,), sources=(Mirror(address, ("tiny.tar.gz",), layout),))
        assert fetch(dataset) == address
    assert is_in_the_cache(dataset)


def test_when_nothing_works_the_message_says_what_to_do(tmp_path):
    nowhere, also_nowhere = web.unused_address(), web.unused_address()
    text = refusal(tiny_from(mirror(nowhere), mirror(also_nowhere)))
    assert "Expected tiny from one of 2 sources" in text
    assert f"  {nowhere}: train-images-idx3-ubyte.gz: Connection refused" in text
    assert f"  {also_nowhere}: " in text
    assert str(tmp_path / "cache" / "tiny") in text
    assert ", ".join(name.removesuffix(".gz") for name in FILES) in text


def test_files_put_by_hand_where_the_message_says_are_found(tmp_path):
    dataset = tiny_from(mirror(web.unused_address()))
    tiny.write(tmp_path / "cache" / "tiny", GOOD)
    assert fetch(dataset) == "found on this machine"


def test_a_mirror_of_ones_own_comes_first():
    with web.serve(GOOD) as (_, address):
        assert fetch(tiny_from(mirror(web.unused_address())), mirror=address) == address


def test_waiting_for_another_process_is_reported():
    seen, held, released = [], threading.Event(), threading.Event()

    def hold():
        with locked("tiny"):
            held.set()
            released.wait(10)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(10)

    def report(file, done, total):
        seen.append(file)
        released.set()

    with web.serve(GOOD) as (_, address):
        fetch(tiny_from(mirror(address)), report=report)
    holder.join()
    assert seen[0] == "waiting for another process"


def fetch_in_a_process(address, barrier, sources):
    barrier.wait()
    sources.put(fetch(tiny_from(mirror(address, timeout=30.0))))


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
    assert is_in_the_cache(tiny_from())


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("FOPNG_CACHE", str(tmp_path / "file" / "cache"))
    with web.serve(GOOD) as (_, address), pytest.warns(UserWarning, match="set FOPNG_CACHE to one"):
        text = refusal(tiny_from(mirror(address)))
    assert "Not a directory" in text
