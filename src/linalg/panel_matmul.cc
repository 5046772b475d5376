#include "linalg/panel_matmul.h"

#include <dlfcn.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <dnnl.hpp>
#include <mutex>
#include <span>
#include <unordered_map>

#include "base/check.h"

namespace baton::linalg {
namespace {

using dnnl::memory;

/// Debian's oneDNN forks OpenMP threads of its own unless the calling thread asks for one. Looked
/// up at run time: it must be the runtime that oneDNN itself was linked with, whichever compiler
/// built us.
void use_one_thread() {
  using SetNumThreads = void (*)(int);
  static const auto set_num_threads =
      reinterpret_cast<SetNumThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  thread_local bool done = false;
  if (done) return;
  if (set_num_threads != nullptr) set_num_threads(1);
  done = true;
}

/// oneDNN takes a cap only before its first use, for the whole process. A refusal (too late, or not
/// an x86) leaves the best that it finds.
void cap_instruction_sets(KernelSet kernels) {
  static std::once_flag once;
  std::call_once(once, [kernels] {
    if (kernels == KernelSet::kPortable || kernels == KernelSet::kAvx2) {
      (void)dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2);
    } else if (kernels == KernelSet::kAvx512) {
      (void)dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_bf16);
    }
  });
}

dnnl::engine& cpu_engine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::matmul::primitive_desc describe_matmul(const PanelShape& shape) {
  const auto type = shape.bf16 ? memory::data_type::bf16 : memory::data_type::f32;
  const memory::desc x({shape.n_rows, shape.n_in}, type, memory::format_tag::ab);
  const memory::desc w({shape.n_in, shape.n_out}, type, memory::format_tag::any);
  const memory::desc y({shape.n_rows, shape.n_out}, memory::data_type::f32, memory::format_tag::ab);
  dnnl::primitive_attr attributes;
  // oneDNN's own scratch memory belongs to the thread that made the primitive.
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
#if DNNL_VERSION_MAJOR >= 3
  return {cpu_engine(), x, w, y, attributes};
#else
  return {dnnl::matmul::desc(x, w, y), attributes, cpu_engine()};
#endif
}

dnnl::reorder::primitive_desc describe_packing(const memory::desc& rows,
                                               const memory::desc& packed) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return {cpu_engine(), rows, cpu_engine(), packed, attributes};
}

/// Runs fn, which may throw only where we made a mistake or the machine is out of memory.
template <typename Fn>
void must(Fn&& fn) {
  try {
    fn();
  } catch (const std::exception& e) {
    BATON_CHECK(false, "oneDNN: {}", e.what());
  }
}

}  // namespace

struct PanelMatmul::Impl {
  explicit Impl(const PanelShape& shape)
      : matmul_desc(describe_matmul(shape)),
        matmul(matmul_desc),
        rows_desc({shape.n_in, shape.n_out}, memory::data_type::f32, memory::format_tag::ba),
        packing_desc(describe_packing(rows_desc, matmul_desc.weights_desc())),
        packing(packing_desc) {}

  dnnl::matmul::primitive_desc matmul_desc;
  dnnl::matmul matmul;
  memory::desc rows_desc;
  dnnl::reorder::primitive_desc packing_desc;
  dnnl::reorder packing;
};

struct PanelMatmul::Runner::State {
  State(const Impl& impl, std::byte* scratch)
      : matmul(impl.matmul),
        stream(cpu_engine()),
        x(impl.matmul_desc.src_desc(), cpu_engine(), nullptr),
        w(impl.matmul_desc.weights_desc(), cpu_engine(), nullptr),
        y(impl.matmul_desc.dst_desc(), cpu_engine(), nullptr),
        arguments{{DNNL_ARG_SRC, x},
                  {DNNL_ARG_WEIGHTS, w},
                  {DNNL_ARG_DST, y},
                  {DNNL_ARG_SCRATCHPAD,
                   memory(impl.matmul_desc.scratchpad_desc(), cpu_engine(), scratch)}} {}

  const dnnl::matmul& matmul;
  dnnl::stream stream;
  memory x;
  memory w;
  memory y;
  std::unordered_map<int, memory> arguments;
};

PanelMatmul::PanelMatmul(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PanelMatmul::~PanelMatmul() = default;

Result<std::unique_ptr<PanelMatmul>> PanelMatmul::create(KernelSet kernels,
                                                         const PanelShape& shape) {
  try {
    cap_instruction_sets(kernels);
    use_one_thread();
    return std::unique_ptr<PanelMatmul>(new PanelMatmul(std::make_unique<Impl>(shape)));
  } catch (const std::exception& e) {
    return fail(ErrorCode::kUnsupported, "oneDNN has no {} product of {} x {} by {} here: {}",
                shape.bf16 ? "bf16" : "float32", shape.n_rows, shape.n_in, shape.n_out, e.what());
  }
}

size_t PanelMatmul::packed_bytes() const { return impl_->matmul_desc.weights_desc().get_size(); }

size_t PanelMatmul::scratch_bytes() const {
  return std::max(impl_->matmul_desc.scratchpad_desc().get_size(),
                  impl_->packing_desc.scratchpad_desc().get_size());
}

std::string PanelMatmul::implementation() const { return impl_->matmul_desc.impl_info_str(); }

std::string PanelMatmul::layout() const {
  const memory::desc tile = impl_->matmul_desc.weights_desc();
#if DNNL_VERSION_MAJOR >= 3
  const std::vector<int64_t> padded = tile.get_padded_dims();
  const std::vector<int64_t> strides = tile.get_strides();
  const std::vector<int64_t> blocks = tile.get_inner_blks();
  const std::vector<int64_t> indices = tile.get_inner_idxs();
#else
  const dnnl_memory_desc_t& d = tile.data;
  const dnnl_blocking_desc_t& b = d.format_desc.blocking;
  const std::span padded(d.padded_dims, static_cast<size_t>(d.ndims));
  const std::span strides(b.strides, static_cast<size_t>(d.ndims));
  const std::span blocks(b.inner_blks, static_cast<size_t>(b.inner_nblks));
  const std::span indices(b.inner_idxs, static_cast<size_t>(b.inner_nblks));
#endif
  return fmt::format("padded {} strides {} blocks {} of {}", fmt::join(padded, " "),
                     fmt::join(strides, " "), fmt::join(blocks, " "), fmt::join(indices, " "));
}

void PanelMatmul::pack(const float* rows, std::byte* packed, std::byte* scratch) const {
  must([&] {
    use_one_thread();
    dnnl::stream stream(cpu_engine());
    memory from(impl_->rows_desc, cpu_engine(), const_cast<float*>(rows));
    memory to(impl_->matmul_desc.weights_desc(), cpu_engine(), packed);
    memory pad(impl_->packing_desc.scratchpad_desc(), cpu_engine(), scratch);
    impl_->packing.execute(stream,
                           {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}, {DNNL_ARG_SCRATCHPAD, pad}});
    stream.wait();
  });
}

PanelMatmul::Runner::Runner(const PanelMatmul& matmul, std::byte* scratch) {
  must([&] {
    use_one_thread();
    state_ = std::make_unique<State>(*matmul.impl_, scratch);
  });
}

PanelMatmul::Runner::~Runner() = default;

void PanelMatmul::Runner::run(const void* x, const std::byte* packed, float* y) {
  must([&] {
    State& s = *state_;
    s.x.set_data_handle(const_cast<void*>(x));
    s.w.set_data_handle(const_cast<std::byte*>(packed));
    s.y.set_data_handle(y);
    s.matmul.execute(s.stream, s.arguments);
    s.stream.wait();
  });
}

}  // namespace baton::linalg
