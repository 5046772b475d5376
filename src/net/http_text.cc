#include "net/http_text.h"

#include <boost/beast/http/status.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace baton::net {
namespace {

std::string body_of(std::string_view message, std::string_view type) {
  return fmt::format(R"({{"error":{{"message":"{}","type":"{}","param":null,"code":null}}}})",
                     message, type);
}

std::string_view reason(int status) {
  namespace http = boost::beast::http;
  return http::obsolete_reason(http::int_to_status(static_cast<unsigned>(status)));
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  const auto hex = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex(text[i + 1]) >= 0 && hex(text[i + 2]) >= 0) {
      out.push_back(static_cast<char>(hex(text[i + 1]) * 16 + hex(text[i + 2])));
      i += 2;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

/// A value never ends its line: what an upper layer passes on can't add headers.
void append_field(std::string& head, std::string_view name, std::string_view value) {
  head += name;
  head += ": ";
  for (const char c : value) {
    if (c != '\r' && c != '\n') head += c;
  }
  head += "\r\n";
}

/// Escapes what can't stand in a path (RFC 3986, 3.3).
std::string percent_encoded(std::string_view path) {
  constexpr std::string_view kPlain = "-._~/:@!$&'()*+,;=";
  std::string out;
  for (const char c : path) {
    const bool alphanumeric =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (alphanumeric || kPlain.find(c) != kPlain.npos) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

}  // namespace

std::string error_body(std::string_view message) {
  return body_of(message, "invalid_request_error");
}

std::string lower_case(std::string_view ascii) {
  std::string out(ascii);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

HttpResponse dropped_response() {
  return {500,
          "application/json",
          {},
          body_of("the request was dropped by the server", "server_error")};
}

HttpResponse preflight_response() {
  HttpResponse response{204, "", {}, ""};
  response.headers["Access-Control-Allow-Methods"] = "GET, POST, OPTIONS";
  response.headers["Access-Control-Allow-Headers"] = "*";
  response.headers["Access-Control-Max-Age"] = "86400";
  return response;
}

HttpRequest request_of(std::string_view method, std::string_view target) {
  HttpRequest request;
  request.method = std::string(method);
  // The absolute form (RFC 9112, 3.2.2): what stands before the path is of no interest.
  if (const size_t scheme = target.find("://"); !target.starts_with('/') && scheme != target.npos) {
    target.remove_prefix(std::min(target.find('/', scheme + 3), target.size()));
    if (target.empty()) target = "/";
  }
  const size_t question = target.find('?');
  request.path = percent_decoded(target.substr(0, question));
  if (question != std::string_view::npos) request.query = std::string(target.substr(question + 1));
  return request;
}

std::string request_head(const HttpRequest& request, std::string_view origin,
                         std::string_view bearer_token) {
  std::string target = percent_encoded(request.path);
  if (!request.query.empty()) target.append("?").append(request.query);
  std::erase_if(target, [](char c) { return c == ' ' || c == '\r' || c == '\n'; });
  std::string head = fmt::format("{} {} HTTP/1.1\r\n", request.method, target);
  append_field(head, "Host", origin.substr(origin.find("//") + 2));
  append_field(head, "User-Agent", "baton");
  if (!bearer_token.empty()) {
    append_field(head, "Authorization", std::string("Bearer ").append(bearer_token));
  }
  for (const auto& [name, value] : request.headers) append_field(head, name, value);
  if (!request.body.empty() || request.method == "POST") {
    append_field(head, "Content-Length", std::to_string(request.body.size()));
  }
  head += "\r\n";
  return head;
}

std::string response_head(const HttpResponse& response, const Framing& framing) {
  std::string head =
      fmt::format("HTTP/1.1 {} {}\r\nServer: baton\r\n", response.status, reason(response.status));
  const auto field = [&](std::string_view name, std::string_view value) {
    append_field(head, name, value);
  };
  if (!response.content_type.empty()) field("Content-Type", response.content_type);
  for (const auto& [name, value] : response.headers) field(name, value);
  if (!framing.allow_origin.empty()) field("Access-Control-Allow-Origin", framing.allow_origin);
  if (!framing.keep_alive) field("Connection", "close");
  head += framing.header;
  head += "\r\n";
  return head;
}

}  // namespace baton::net
