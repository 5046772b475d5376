"""What the end-to-end tests share: real server processes, a plain HTTP client, the goldens."""
import gzip
import http.client
import json
import os
import pathlib
import re
import select
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BATON = os.environ.get("BATON", str(ROOT / "build/release/src/cli/baton"))
CACHE = pathlib.Path(os.environ.get("BATON_CACHE") or pathlib.Path.home() / ".cache/baton")
SHARED = pathlib.Path(os.environ.get("BATON_SHARED") or ROOT.parent / "shared")
MODELS = {"smollm2": "smollm2-135m", "gemma3": "gemma3-270m"}


class Server:
    """A `baton serve` process, ready when it has printed its curl line. One engine that does both unless told otherwise.
    With `log` what it says on stderr goes to that file (a pipe is read at the end only, and may be full before)."""

    def __init__(self, *flags, model="smollm2-135m", kernels=None, env=None, timeout=120, log=None):
        environment = dict(os.environ, **(env or {}))
        if kernels:
            environment["BATON_KERNELS"] = kernels
        if "--engines" not in flags:
            flags = ("--engines", "1B", *flags)
        self.start([BATON, "serve", model, "--port", "0", *map(str, flags)], environment, timeout, log)

    @classmethod
    def launch(cls, *arguments, env=None, timeout=120):
        """Any command of baton that prints the curl line."""
        server = cls.__new__(cls)
        server.start([BATON, *map(str, arguments)], dict(os.environ, **(env or {})), timeout)
        return server

    def start(self, command, environment, timeout, log=None):
        with open(log or os.devnull, "w") as file:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file if log else subprocess.PIPE,
                                            env=environment, text=True)
        started = time.monotonic()
        self.curl = ""
        while not self.curl and time.monotonic() - started < timeout:
            if select.select([self.process.stdout], [], [], 0.2)[0]:
                self.curl = self.process.stdout.readline()
            if self.process.poll() is not None:
                break
        match = re.search(r"http://[\w.\[\]:]*:(\d+)/", self.curl)
        if not match:
            self.process.kill()
            raise RuntimeError(f"baton did not start: {self.process.communicate()[1][-2000:]}")
        self.port = int(match.group(1))
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self, timeout=60):
        """SIGTERM; the exit status and what was on stderr."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.wait(timeout)

    def wait(self, timeout=60):
        """Waits for the end of a process that was told to stop."""
        try:
            _, errors = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        return self.process.returncode, errors

    def connection(self, timeout=300):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def request(self, method, path, body=None, headers=None):
        """(status, headers, body as bytes). A dict is sent as JSON."""
        connection = self.connection()
        headers = dict(headers or {})
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
            headers.setdefault("Content-Type", "application/json")
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        data = response.read()
        connection.close()
        return response.status, dict(response.getheaders()), data

    def post(self, path, **body):
        """The JSON of a 200 answer."""
        status, _, data = self.request("POST", path, body)
        assert status == 200, (status, data[:500])
        return json.loads(data)

    def events(self, path, **body):
        """The JSON objects of a stream, as they come; asserts that it ends with [DONE]."""
        connection = self.connection()
        connection.request("POST", path, json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert response.status == 200, response.read()[:500]
        done = False
        while line := response.readline():
            if line.startswith(b"data: [DONE]"):
                done = True
            elif line.startswith(b"data: "):
                assert not done
                yield json.loads(line[6:])
        assert done, "the stream ended without [DONE]"

    def metrics(self):
        """{series with its labels: value}"""
        text = self.request("GET", "/metrics")[2].decode()
        return {name: float(value) for name, value in
                (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))}

    def metric(self, name, **labels):
        """Sum of the series of that name whose labels include `labels`."""
        wanted = [f'{k}="{v}"' for k, v in labels.items()]
        return sum(value for series, value in self.metrics().items()
                   if series.split("{")[0] == name and all(w in series for w in wanted))

    def engines(self):
        """What GET /engines says, one dict for each."""
        status, _, data = self.request("GET", "/engines")
        assert status == 200, (status, data[:500])
        return json.loads(data)

    def pids(self):
        """Of the server itself and of its engines."""
        return [self.process.pid, *children(self.process.pid)]

    def blocks_used(self):
        return self.metric("baton_kv_blocks", state="used")

    def wait_idle(self, seconds=1.0):
        """Whether within `seconds` nothing runs or waits, on any engine or in the router, and no block is held."""
        deadline = time.monotonic() + seconds
        while True:
            busy = [self.metric("vllm:num_requests_running"), self.metric("vllm:num_requests_waiting"), self.metric("baton_router_requests_waiting"),
                    self.blocks_used(), self.metric("baton_kv_blocks", state="leased"),
                    sum(engine["in_flight"] for engine in self.engines())]
            if not any(busy):
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)


def stat_fields(pid):
    """Of /proc/PID/stat, after the name: state, parent, …; None when there is no such process."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None


def children(pid):
    """The processes whose parent is `pid`, zombies left out."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        fields = stat_fields(entry.name) if entry.name.isdigit() else None
        if fields and fields[1] == str(pid) and fields[0] != "Z":
            found.append(int(entry.name))
    return found


def alive(pid):
    fields = stat_fields(pid)
    return fields is not None and fields[0] != "Z"


def goldens(model):
    """The golden entries of a real model, or None when they are not there."""
    path = SHARED / f"golden/{model}.json.gz"
    if not path.exists():
        return None
    with gzip.open(path) as file:
        return json.load(file)
