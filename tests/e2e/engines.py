"""Lone `baton engine` processes in a symmetric world of their own, driven by the four verbs of docs/protocol.md."""
import http.client
import json
import os
import pathlib
import re
import secrets
import signal
import subprocess
import time

import baton


def world(npes):
    """A function from pe_start to the environment that places an engine in a new world of `npes`."""
    uid = secrets.token_hex(16)
    return lambda pe_start, **more: {"BATON_SHMEM_INIT_CONFIG_JSON_STR": json.dumps(
        {"uid": uid, "npes": npes, "pe_start": pe_start, **more})}


class Engine:
    """A `baton engine` process; `ready()` waits until it serves."""

    def __init__(self, role, *flags, env=None, model="smollm2-135m"):
        self.role = role
        read_fd, write_fd = os.pipe()
        self.process = subprocess.Popen(
            [baton.BATON, "engine", "--model", model, "--role", role, "--port", "0", "--ready-fd", str(write_fd),
             "--log-level", "error", *map(str, flags)],
            stderr=subprocess.PIPE, env=dict(os.environ, **(env or {})), pass_fds=(write_fd,), text=True)
        os.close(write_fd)
        self.ready_pipe = os.fdopen(read_fd)

    def ready(self):
        line = self.ready_pipe.readline()
        self.said = json.loads(line) if line else {"error": self.process.communicate()[1][-1000:]}
        assert "url" in self.said, self.said
        self.port = int(re.search(r":(\d+)$", self.said["url"]).group(1))
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ready_pipe.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)
        self.process.stderr.close()

    def connect(self, verb, body, timeout=60):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        connection.request("POST", f"/v1/microserving/{verb}", json.dumps(body), {"Content-Type": "application/json"})
        return connection

    def call(self, verb, **body):
        """(status, JSON) of one verb."""
        connection = self.connect(verb, body)
        response = connection.getresponse()
        data = json.loads(response.read() or b"{}")
        connection.close()
        return response.status, data

    def ok(self, verb, **body):
        status, data = self.call(verb, **body)
        assert status == 200, (verb, status, data)
        return data

    def generate(self, **body):
        """Token ids of choice 0 out of a start_generate without a session; asserts a proper end."""
        connection = self.connect("start_generate", body)
        response = connection.getresponse()
        assert response.status == 200, response.read()
        ids, finish = [], None
        for line in response:
            for update in json.loads(line).get("updates", []):
                for event in update.get("events", []):
                    ids += event.get("tokens", [])
                    finish = event.get("finish") or finish
        connection.close()
        assert finish in ("stop", "length"), finish
        return ids

    def metric(self, name, **labels):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        wanted = [f'{k}="{v}"' for k, v in labels.items()]
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines()
                   if line.split("{")[0] == name and all(w in line for w in wanted))

    def free(self):
        """Nothing runs, nothing is held or leased."""
        return [self.metric("vllm:num_requests_running"), self.metric("vllm:num_requests_waiting"),
                self.metric("baton_kv_blocks", state="used"), self.metric("baton_kv_blocks", state="leased"),
                self.metric("baton_leases")] == [0, 0, 0, 0, 0]

    def cpu_ticks(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])


def wait_for(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
