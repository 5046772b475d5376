// Whether the peer of a socket is still there, without reading and without ever blocking.
#pragma once

namespace baton::net {

/// The peer has closed (at least its sending side), or the connection is broken; bytes that it sent
/// before and nobody has read yet don't hide it.
[[nodiscard]] bool peer_gone(int socket);

}  // namespace baton::net
