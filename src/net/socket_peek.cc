#include "net/socket_peek.h"

#include <sys/socket.h>

#include <cerrno>

namespace baton::net {

Peek peek(int socket) {
  char byte = 0;
  const auto n = ::recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (n > 0) return Peek::kData;
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return Peek::kQuiet;
  return Peek::kGone;
}

}  // namespace baton::net
