// A thread that others depend on for as long as the process lives: it has a name, and it never ends
// unnoticed.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace baton {

/// Starts a thread for `body`; the system shows the first 15 bytes of the name.
///
/// An exception that leaves `body` (out of memory, say) ends the process with a line that names the
/// thread and the reason: whoever waits for the thread would wait for ever, while the end of a
/// process is seen by all others, and a supervisor starts it again.
[[nodiscard]] std::thread service_thread(std::string name, std::function<void()> body);

}  // namespace baton
