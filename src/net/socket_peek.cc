#include "net/socket_peek.h"

#include <poll.h>

namespace baton::net {

bool peer_gone(int socket) {
  pollfd entry{socket, POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) > 0 && (entry.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

}  // namespace baton::net
