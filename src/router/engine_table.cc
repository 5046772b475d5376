#include "router/engine_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/json_writer.h"

namespace baton::router {

std::string Engine::title() const {
  if (info.incarnation == 0) return fmt::format("engine {}", id);
  return fmt::format("engine {} ({})", id, name(info.role));
}

std::string_view Engine::state_name() const {
  if (ready()) return "ready";
  if (up) return "draining";
  if (supervised.state == "starting" || supervised.state == "draining") return supervised.state;
  const bool never_seen = info.incarnation == 0 && supervised.state.empty();
  return never_seen ? "starting" : "dead";
}

bool can_hand_over(const Engine& prefill, const Engine& decode) {
  return prefill.info.in_world && decode.info.in_world &&
         prefill.info.layout_hash == decode.info.layout_hash;
}

int EngineTable::add(std::string id, std::string url, EngineLink& link) {
  Engine& engine = engines_.emplace_back();
  engine.id = std::move(id);
  engine.url = std::move(url);
  engine.link = &link;
  return size() - 1;
}

bool EngineTable::any_can_decode() const {
  return std::any_of(engines_.begin(), engines_.end(),
                     [](const Engine& one) { return one.can_decode(); });
}

bool EngineTable::any_generator_seen() const {
  return std::any_of(engines_.begin(), engines_.end(), [](const Engine& one) {
    return one.info.incarnation != 0 && one.info.role != Role::kPrefill;
  });
}

std::string EngineTable::missing_for_path() const {
  bool any_prefill = false;
  bool any_decode = false;
  for (const Engine& decode : engines_) {
    any_prefill |= decode.is_prefill();
    if (!decode.can_decode()) continue;
    if (decode.info.role == Role::kBoth) return {};
    any_decode = true;
    for (const Engine& prefill : engines_) {
      if (prefill.is_prefill() && can_hand_over(prefill, decode)) return {};
    }
  }
  if (any_prefill && any_decode) {
    return "no prefill engine shares a symmetric world and a KV layout with a decode engine";
  }
  return any_decode    ? "no prefill engine is ready"
         : any_prefill ? "no decode engine is ready"
                       : "no engine is ready";
}

std::string EngineTable::json() const {
  api::JsonWriter json;
  json.begin_array();
  for (const Engine& one : engines_) {
    const bool known = one.info.incarnation != 0;
    json.begin_object().key("id").string(one.id).key("url").string(one.url);
    json.key("role");
    known ? json.string(name(one.info.role)) : json.null();
    // A string: JSON readers that make doubles of numbers would lose its last digits.
    json.key("incarnation");
    known ? json.string(std::to_string(one.info.incarnation)) : json.null();
    json.key("pid");
    one.up ? json.integer(one.info.pid) : json.null();
    json.key("cpus").begin_array();
    for (const int cpu : known ? one.info.cpus : one.supervised.cpus) json.integer(cpu);
    json.end_array();
    json.key("state").string(one.state_name());
    const EngineState state = one.up ? one.state : EngineState{};
    json.key("running").integer(state.n_running).key("waiting").integer(state.n_waiting);
    json.key("in_flight").integer(one.load.n_requests);
    json.key("kv_blocks_total").integer(one.info.n_blocks);
    json.key("kv_blocks_used").integer(state.blocks_used);
    json.key("kv_blocks_cached").integer(state.blocks_cached);
    json.key("kv_blocks_leased").integer(state.blocks_leased);
    json.key("restarts").integer(one.n_restarts);
    json.key("last_error");
    const std::string& error =
        one.supervised.last_error.empty() ? one.last_error : one.supervised.last_error;
    error.empty() ? json.null() : json.string(error);
    json.end_object();
  }
  return json.end_array().take();
}

}  // namespace baton::router
