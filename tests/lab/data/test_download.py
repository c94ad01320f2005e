"""Downloads against a server on loopback that cuts off, corrupts, stalls and answers errors."""

import contextlib
import hashlib
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import requests
from apart import started

from layernorm.lab.data import pinned
from layernorm.lab.data.pinned import Pinned

CONTENT = bytes(range(256)) * 2000
CORRUPT = CONTENT[:1000] + b"!" + CONTENT[1001:]
HALF = len(CONTENT) // 2
FILE = Pinned("file.gz", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))


class Mirror(BaseHTTPRequestHandler):
    """Answers /<behavior>/file.gz: the first part of the path says how it fails, if it does."""

    def do_GET(self):
        behavior = self.path.split("/")[1]
        self.server.asked.append(behavior)
        if behavior.isdecimal():
            return self.send_error(int(behavior))
        body = {"corrupt": CORRUPT, "html": b"<html>Please log in</html>"}.get(behavior, CONTENT)
        if behavior in ("endless", "drip"):
            self.send_response(200)
            self.end_headers()
            return self.send_without_end(behavior)
        self.send_response(200)
        if behavior != "cut-without-length":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:HALF])
        if behavior == "stall":
            self.server.release.wait(60)
        if behavior == "together":
            self.server.together.wait()
        if not behavior.startswith(("cut", "stall")):
            self.wfile.write(body[HALF:])

    def send_without_end(self, behavior):
        with contextlib.suppress(OSError):  # the other side has had enough
            while not self.server.release.wait(0.05 if behavior == "drip" else 0):
                self.wfile.write(b"x" if behavior == "drip" else CONTENT)
                self.server.sent += len(CONTENT)

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Mirror) as server:
        server.asked, server.release, server.sent = [], threading.Event(), 0
        server.url = lambda behavior: f"http://127.0.0.1:{server.server_port}/{behavior}/"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.release.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.delenv("LAYERNORM_DATA", raising=False)
    monkeypatch.setattr(pinned, "cache_folder", lambda dataset: tmp_path / "cache" / dataset)
    return tmp_path / "cache" / "mnist"


def fetch(server, *behaviors):
    return pinned.fetch("mnist", FILE, tuple(server.url(behavior) for behavior in behaviors))


def fetch_again(server, cache, *behaviors):
    (cache / "file.gz").unlink()
    return fetch(server, *behaviors)


def test_a_good_file_is_fetched_once(server, cache):
    found = fetch(server, "good")
    assert found.path == cache / "file.gz"
    assert found.path.read_bytes() == CONTENT
    assert fetch(server, "good") == found
    assert server.asked == ["good"]
    assert os.listdir(cache) == ["file.gz"]


BAD = ["500", "404", "cut", "cut-without-length", "corrupt", "html"]


@pytest.mark.parametrize("behavior", BAD)
def test_after_a_bad_first_mirror_the_second_is_used(server, cache, behavior):
    assert fetch(server, behavior, "good").path.read_bytes() == CONTENT
    assert server.asked == [behavior, "good"]
    assert os.listdir(cache) == ["file.gz"]


@pytest.mark.parametrize("behavior", BAD)
def test_two_bad_mirrors_leave_nothing_and_say_what_to_do(server, cache, behavior):
    with pytest.raises(OSError, match="could not be fetched from any mirror") as error:
        fetch(server, behavior, "404")
    message = str(error.value)
    assert server.url(behavior) + "file.gz" in message
    assert server.url("404") + "file.gz" in message
    assert "$LAYERNORM_DATA/mnist/file.gz" in message
    assert FILE.sha256 in message
    assert os.listdir(cache) == []


@pytest.mark.parametrize(
    ("behavior", "body"), [("corrupt", CORRUPT), ("cut-without-length", CONTENT[:HALF])]
)
def test_a_wrong_download_is_named_with_expected_and_actual_hash(server, cache, behavior, body):
    with pytest.raises(OSError, match=r"file\.gz") as error:
        fetch(server, behavior)
    assert f"expected sha256:{FILE.sha256}" in str(error.value)
    assert f"got {hashlib.sha256(body).hexdigest()}" in str(error.value)


def test_a_mirror_that_stops_sending_counts_as_down(server, cache, monkeypatch):
    monkeypatch.setattr(pinned, "TIMEOUT", 1.0)
    asked, get = [], requests.get
    monkeypatch.setattr(
        requests, "get", lambda *a, **k: (asked.append(k["timeout"]), get(*a, **k))[1]
    )
    assert fetch(server, "stall", "good").path.read_bytes() == CONTENT
    assert asked == [1.0, 1.0]  # pooch's own patience is 30 s
    assert os.listdir(cache) == ["file.gz"]


def test_a_mirror_that_sends_without_end_is_cut_off(server, cache):
    assert fetch(server, "endless", "good").path.read_bytes() == CONTENT
    with pytest.raises(OSError, match=f"sends more than the file's {len(CONTENT)} bytes"):
        fetch_again(server, cache, "endless")
    assert server.sent < 50 * len(CONTENT)  # what the system's buffers hold


def test_a_mirror_that_sends_byte_by_byte_counts_as_down(server, cache, monkeypatch):
    monkeypatch.setattr(pinned, "PATIENCE", 0.5)
    monkeypatch.setattr(pinned, "SLOWEST", 10**9)
    with pytest.raises(OSError, match=rf"sent \d+ of {len(CONTENT)} bytes in"):
        fetch(server, "drip")
    assert os.listdir(cache) == []


def test_a_pipe_in_the_own_folder_is_refused(server, cache, tmp_path, monkeypatch):
    (tmp_path / "own" / "mnist").mkdir(parents=True)
    monkeypatch.setenv("LAYERNORM_DATA", str(tmp_path / "own"))
    os.mkfifo(tmp_path / "own" / "mnist" / "file.gz")
    with pytest.raises(ValueError, match=r"file\.gz: expected a file, got a folder, pipe"):
        fetch(server, "good")
    assert server.asked == []


def test_a_mirror_that_refuses_the_connection_counts_as_down(server, cache):
    with ThreadingHTTPServer(("127.0.0.1", 0), Mirror) as closed:
        down = f"http://127.0.0.1:{closed.server_port}/"
    assert pinned.fetch("mnist", FILE, (down, server.url("good"))).path.read_bytes() == CONTENT


def test_a_bad_file_in_the_cache_is_refused_then_replaced(server, cache):
    cache.mkdir(parents=True)
    (cache / "file.gz").write_bytes(CORRUPT)
    actual = hashlib.sha256(CORRUPT).hexdigest()
    with pytest.raises(ValueError, match=rf"file\.gz: expected sha256 {FILE.sha256}, got {actual}"):
        pinned.find("mnist", FILE)
    with pytest.raises(OSError, match=rf"file\.gz: expected sha256 {FILE.sha256}, got {actual}"):
        fetch(server, "500")
    assert fetch(server, "good").path.read_bytes() == CONTENT
    assert os.listdir(cache) == ["file.gz"]


def test_the_own_folder_is_never_written(server, cache, tmp_path, monkeypatch):
    own = tmp_path / "own" / "mnist"
    own.mkdir(parents=True)
    monkeypatch.setenv("LAYERNORM_DATA", str(own.parent))
    assert fetch(server, "good").path == cache / "file.gz"
    assert os.listdir(own) == []
    (own / "file.gz").write_bytes(CONTENT)
    assert fetch(server, "good").path == own / "file.gz"
    assert server.asked == ["good"]


def test_only_old_temporary_files_are_swept(server, cache):
    cache.mkdir(parents=True)
    (cache / "tmpold").write_bytes(b"x")
    (cache / "tmpnew").write_bytes(b"x")
    os.utime(cache / "tmpold", (time.time() - 90_000,) * 2)
    fetch(server, "good")
    assert sorted(os.listdir(cache)) == ["file.gz", "tmpnew"]


def test_without_pooch_it_says_what_to_install(cache, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'layernorm\[data\]'"):
        pinned.fetch("mnist", FILE, ("http://127.0.0.1:9/",))


def start(cache, *mirrors):
    """Another Python process that fetches FILE into the cache, without waiting for torch."""
    script = (
        # A shell that runs the tests in the background passes on that it ignores Ctrl-C.
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "import pathlib, sys; sys.path.append(sys.argv[1]); import pinned; "
        "pinned.cache_folder = lambda dataset: pathlib.Path(sys.argv[2]); "
        "file = pinned.Pinned('file.gz', sys.argv[3], int(sys.argv[4])); "
        "pinned.fetch('mnist', file, tuple(sys.argv[5:]))"
    )
    folder = os.path.dirname(pinned.__file__)
    return started("-c", script, folder, str(cache), FILE.sha256, str(FILE.size), *mirrors)


def test_two_processes_may_fetch_at_the_same_time(server, cache):
    server.together = threading.Barrier(2, timeout=300)
    processes = [start(cache, server.url("together")) for _ in range(2)]
    for process in processes:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    assert server.asked == ["together", "together"]
    assert (cache / "file.gz").read_bytes() == CONTENT
    assert os.listdir(cache) == ["file.gz"]


def test_an_interrupted_download_leaves_nothing(server, cache):
    process = start(cache, server.url("stall"))
    while not any(file.stat().st_size for file in cache.glob("tmp*")):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert "KeyboardInterrupt" in errors
    assert os.listdir(cache) == []
