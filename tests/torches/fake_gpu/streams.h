// Streams of a GPU that does not exist, for cuda.cpp and nccl.cpp; what the two are for stands in cuda.cpp.
//
// A stream is a queue of operations. Nobody works it off in the background: it is advanced whenever somebody puts something in or asks
// how far it is, as torch's watchdog does ten times a second. One mutex guards everything.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#define FAKE extern "C" __attribute__((visibility("default")))

namespace fake {

// One thing that a stream does.
class Operation {
  public:
    virtual ~Operation() = default;

    // Go on with it; true once it is over. It is asked again until then, and never afterwards.
    bool advance() { return over_ || (over_ = try_to_end()); }

  private:
    virtual bool try_to_end() = 0;
    bool over_ = false;
};

using Batch = std::vector<std::unique_ptr<Operation>>; // begins as one, and is over when all of it is: an NCCL group

class Stream;

std::recursive_mutex& mutex();
Stream* stream_of(void* handle);
void put(Stream* stream, Batch batch);
void advance_all();
// Sleep for as long as somebody who waits for a device does before asking again.
void wait_a_moment();
// Write the bytes at `from` to `to` when `stream` has come to it.
void put_copy(Stream* stream, void* to, const void* from, size_t bytes);

template <typename Kind, typename... Values> Batch batch_of(Values... values) {
    Batch batch;
    batch.push_back(std::make_unique<Kind>(values...));
    return batch;
}

} // namespace fake
