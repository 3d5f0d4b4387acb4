// NCCL between processes of one machine, without a GPU; cuda.cpp says what it is part of.
//
// A collective begins when its stream comes to it. It ends when it has begun on every rank of the communicator and all have called the
// same: the same operation, as many bytes, the same root. Otherwise it never ends. A send ends with its receive. The ranks of a
// communicator meet in a file that each of them maps, below FAKE_GPU_DIRECTORY (default /tmp); it is removed once all have.
//
// What it cannot show:
//   * any value that a collective computes. What up to 4 KiB of broadcast and all_gather carry is real, because DDP decides by it
//     whether the ranks have the same model. All else leaves a rank with its own input, and a receive with what was there; so
//     collectives of objects, whose sizes torch adds up in a kernel, do not work;
//   * what NCCL does where calls differ: it may end, fail or hang, and here it hangs;
//   * times, networks, what NCCL notices of a dead peer, its RAS service, communicators that grow, shrink or do not block.
//
// For a test's script: FAKE_NCCL_HANGS_FROM=N in its environment, or fake_nccl_hang_from(N) by ctypes.CDLL(None): in every communicator
// the collective number N, counted from 0, and those after it never end on this rank.

#include "streams.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <set>
#include <string>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace fake {
namespace {

constexpr int MAX_RANKS = 16;
constexpr int SLOTS = 1024; // how many collectives a rank may be ahead, those of one group together
constexpr int SPLITS = 64;
constexpr size_t PAYLOAD_BYTES = 4096;
constexpr int SUCCESS = 0;
constexpr int VERSION = 22907;

enum class Kind { all_reduce = 1, broadcast, reduce, all_gather, reduce_scatter, all_to_all, gather };

// What a rank calls: two ranks meet if theirs are equal.
struct Call {
    Kind kind;
    int root; // -1: none
    size_t bytes;

    bool operator==(const Call& other) const { return kind == other.kind && root == other.root && bytes == other.bytes; }
};

// One rank's part of a communicator's file. Each is written by its rank and read by all.
struct Member {
    volatile int64_t joined;
    volatile int64_t begun; // how many collectives
    volatile int64_t sent[MAX_RANKS];
    volatile int64_t received[MAX_RANKS];
    volatile int64_t split[SPLITS]; // of each split: color and key, see ncclCommSplit
    Call calls[SLOTS];
    char payloads[SLOTS][PAYLOAD_BYTES];
};

struct Communicator {
    Communicator(const std::string& name, Member* members, int rank, int size)
        : name(name), members(members), rank(rank), size(size) {}

    const std::string name;
    Member* const members;
    const int rank;
    const int size;
    int64_t issued = 0;
    int64_t hangs_from = -1;
    int splits = 0;
    bool aborted = false;
    std::map<int, int64_t> sent, received; // by peer
};

std::set<Communicator*>& communicators() {
    static auto* all = new std::set<Communicator*>;
    return *all;
}

class Collective : public Operation {
  public:
    Collective(Communicator* communicator, Call call, const void* input, void* output)
        : communicator_(communicator), number_(communicator->issued++), call_(call), input_(static_cast<const char*>(input)),
          output_(static_cast<char*>(output)) {}

  private:
    bool try_to_end() override {
        Member& mine = communicator_->members[communicator_->rank];
        if (!begun_) {
            mine.calls[number_ % SLOTS] = call_;
            memcpy(mine.payloads[number_ % SLOTS], input_, input_ && call_.bytes <= PAYLOAD_BYTES ? call_.bytes : 0);
            __sync_synchronize();
            mine.begun = number_ + 1;
            begun_ = true;
        }
        if (communicator_->aborted)
            return true;
        if (communicator_->hangs_from >= 0 && number_ >= communicator_->hangs_from)
            return false;
        // Every rank looks at what the others have called: one that ended here would be gone for those who come late.
        for (int rank = 0; rank < communicator_->size; rank++) {
            const Member& other = communicator_->members[rank];
            if (other.begun <= number_ || !(other.calls[number_ % SLOTS] == call_))
                return false;
        }
        exchange();
        return true;
    }

    void exchange() {
        const bool whole = call_.bytes <= PAYLOAD_BYTES;
        auto from = [&](int rank) { return whole ? communicator_->members[rank].payloads[number_ % SLOTS] : input_; };
        switch (call_.kind) {
        case Kind::all_gather:
            for (int rank = 0; rank < communicator_->size; rank++)
                memmove(output_ + rank * call_.bytes, from(rank), call_.bytes);
            break;
        case Kind::broadcast: memmove(output_, from(call_.root), call_.bytes); break;
        case Kind::all_reduce: memmove(output_, input_, call_.bytes); break;
        default: break;
        }
    }

    Communicator* communicator_;
    int64_t number_;
    Call call_;
    const char* input_;
    char* output_;
    bool begun_ = false;
};

// One end of a message; the other rank's end is the other count of the pair.
class Message : public Operation {
  public:
    Message(Communicator* communicator, int64_t number, volatile int64_t* mine, const volatile int64_t* other)
        : communicator_(communicator), number_(number), mine_(mine), other_(other) {}

  private:
    bool try_to_end() override {
        *mine_ = number_;
        return communicator_->aborted || *other_ >= number_;
    }
    Communicator* communicator_;
    int64_t number_;
    volatile int64_t* mine_;
    const volatile int64_t* other_;
};

// Between ncclGroupStart and ncclGroupEnd, per thread: what was called, by stream.
thread_local int group_depth = 0;
thread_local std::map<Stream*, Batch> group;

int issue(void* handle, std::unique_ptr<Operation> operation) {
    Stream* stream = stream_of(handle);
    if (group_depth) {
        group[stream].push_back(std::move(operation));
    } else {
        Batch batch;
        batch.push_back(std::move(operation));
        put(stream, std::move(batch));
    }
    return SUCCESS;
}

size_t bytes_of(size_t count, int type) {
    static constexpr size_t SIZES[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1}; // by ncclDataType_t
    return count * SIZES[type];
}

int collective(Communicator* communicator, void* stream, Call call, const void* input, void* output) {
    std::lock_guard guard(mutex());
    return issue(stream, std::make_unique<Collective>(communicator, call, input, output));
}

int64_t hangs_from_environment() {
    const char* text = getenv("FAKE_NCCL_HANGS_FROM");
    return text ? atoll(text) : -1;
}

// Join the communicator of this name, and wait for the others as NCCL does.
Communicator* join(const std::string& name, int size, int rank) {
    if (size > MAX_RANKS) {
        fprintf(stderr, "fake_nccl: %d ranks, and there is room for %d\n", size, MAX_RANKS);
        abort();
    }
    const char* directory = getenv("FAKE_GPU_DIRECTORY");
    const std::string path = std::string(directory ? directory : "/tmp") + "/fake-nccl-" + name;
    const int file = open(path.c_str(), O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, MAX_RANKS * sizeof(Member))) {
        perror(path.c_str());
        abort();
    }
    void* mapped = mmap(nullptr, MAX_RANKS * sizeof(Member), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED) {
        perror(path.c_str());
        abort();
    }
    auto* communicator = new Communicator(name, static_cast<Member*>(mapped), rank, size);
    communicator->hangs_from = hangs_from_environment();
    communicator->members[rank].joined = 1;
    for (int other = 0; other < size; other++)
        while (!communicator->members[other].joined)
            wait_a_moment();
    unlink(path.c_str());
    std::lock_guard guard(mutex());
    communicators().insert(communicator);
    return communicator;
}

int abort_communicator(Communicator* communicator) {
    std::lock_guard guard(mutex());
    communicator->aborted = true;
    advance_all();
    return SUCCESS;
}

} // namespace
} // namespace fake

using namespace fake;

using ncclComm_t = Communicator*;
struct ncclUniqueId {
    char text[128];
};

FAKE void fake_nccl_hang_from(long number) {
    std::lock_guard guard(mutex());
    for (Communicator* communicator : communicators())
        communicator->hangs_from = number;
}

FAKE int ncclGetVersion(int* version) {
    *version = VERSION;
    return SUCCESS;
}

FAKE const char* ncclGetErrorString(int) { return "fake"; }
FAKE const char* ncclGetLastError(ncclComm_t) { return ""; }

// ---- Communicators

FAKE int ncclGetUniqueId(ncclUniqueId* id) {
    static int made = 0;
    std::lock_guard guard(mutex());
    *id = {};
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(id->text, sizeof id->text, "%d-%d-%lld%09ld", getpid(), made++, static_cast<long long>(now.tv_sec), now.tv_nsec);
    return SUCCESS;
}

FAKE int ncclCommInitRank(ncclComm_t* communicator, int size, ncclUniqueId id, int rank) {
    *communicator = join(id.text, size, rank);
    return SUCCESS;
}

FAKE int ncclCommInitRankConfig(ncclComm_t* communicator, int size, ncclUniqueId id, int rank, void*) {
    return ncclCommInitRank(communicator, size, id, rank);
}

FAKE int ncclCommInitRankScalable(ncclComm_t* communicator, int size, int rank, int, ncclUniqueId* ids, void*) {
    return ncclCommInitRank(communicator, size, ids[0], rank);
}

// The ranks of one color, which is 0 or more, become a communicator, in the order of their keys. Others get none.
FAKE int ncclCommSplit(ncclComm_t communicator, int color, int key, ncclComm_t* result, void*) {
    constexpr int64_t NO_COLOR = -1;
    const int64_t mine = color < 0 ? NO_COLOR : (int64_t(color) + 1) << 32 | uint32_t(key);
    const int number = communicator->splits++ % SPLITS;
    communicator->members[communicator->rank].split[number] = mine;
    int size = 0, rank = 0;
    for (int other = 0; other < communicator->size; other++) {
        int64_t theirs;
        while (!(theirs = communicator->members[other].split[number]))
            wait_a_moment();
        if (theirs >> 32 != mine >> 32)
            continue;
        size++;
        rank += theirs < mine || (theirs == mine && other < communicator->rank);
    }
    const std::string name = communicator->name + "-" + std::to_string(number) + "-" + std::to_string(color);
    *result = color < 0 ? nullptr : join(name, size, rank);
    return SUCCESS;
}

FAKE int ncclCommCount(ncclComm_t communicator, int* size) {
    *size = communicator->size;
    return SUCCESS;
}

FAKE int ncclCommUserRank(ncclComm_t communicator, int* rank) {
    *rank = communicator->rank;
    return SUCCESS;
}

FAKE int ncclCommGetAsyncError(ncclComm_t, int* error) {
    *error = SUCCESS;
    return SUCCESS;
}

FAKE int ncclCommAbort(ncclComm_t communicator) { return abort_communicator(communicator); }
FAKE int ncclCommRevoke(ncclComm_t communicator, int) { return abort_communicator(communicator); }
FAKE int ncclCommFinalize(ncclComm_t) { return SUCCESS; }
FAKE int ncclCommDestroy(ncclComm_t) { return SUCCESS; }

FAKE int ncclCommRegister(ncclComm_t, void*, size_t, void** handle) {
    *handle = nullptr;
    return SUCCESS;
}

FAKE int ncclCommDeregister(ncclComm_t, void*) { return SUCCESS; }

FAKE int ncclMemAlloc(void** pointer, size_t bytes) { return posix_memalign(pointer, 512, bytes ? bytes : 1); }
FAKE int ncclMemFree(void*) { return SUCCESS; }

FAKE int ncclRedOpCreatePreMulSum(int* operation, void*, int, int, ncclComm_t) {
    *operation = 0;
    return SUCCESS;
}

FAKE int ncclRedOpDestroy(int, ncclComm_t) { return SUCCESS; }

// ---- Calls

FAKE int ncclGroupStart() {
    group_depth++;
    return SUCCESS;
}

FAKE int ncclGroupEnd() {
    if (--group_depth == 0) {
        auto called = std::move(group);
        group.clear();
        for (auto& [stream, batch] : called)
            put(stream, std::move(batch));
    }
    return SUCCESS;
}

FAKE int ncclAllReduce(const void* input, void* output, size_t count, int type, int, ncclComm_t communicator, void* stream) {
    return collective(communicator, stream, {Kind::all_reduce, -1, bytes_of(count, type)}, input, output);
}

FAKE int ncclBroadcast(const void* input, void* output, size_t count, int type, int root, ncclComm_t communicator, void* stream) {
    return collective(communicator, stream, {Kind::broadcast, root, bytes_of(count, type)}, input, output);
}

FAKE int ncclBcast(void* buffer, size_t count, int type, int root, ncclComm_t communicator, void* stream) {
    return ncclBroadcast(buffer, buffer, count, type, root, communicator, stream);
}

FAKE int ncclReduce(
    const void* input, void* output, size_t count, int type, int, int root, ncclComm_t communicator, void* stream
) {
    return collective(communicator, stream, {Kind::reduce, root, bytes_of(count, type)}, input, output);
}

FAKE int ncclAllGather(const void* input, void* output, size_t count, int type, ncclComm_t communicator, void* stream) {
    return collective(communicator, stream, {Kind::all_gather, -1, bytes_of(count, type)}, input, output);
}

// Of these three the output stays as it was.
FAKE int ncclReduceScatter(const void*, void*, size_t count, int type, int, ncclComm_t communicator, void* stream) {
    return collective(communicator, stream, {Kind::reduce_scatter, -1, bytes_of(count, type)}, nullptr, nullptr);
}

FAKE int ncclAlltoAll(const void*, void*, size_t count, int type, ncclComm_t communicator, void* stream) {
    return collective(communicator, stream, {Kind::all_to_all, -1, bytes_of(count, type)}, nullptr, nullptr);
}

FAKE int ncclGather(const void*, void*, size_t count, int type, int root, ncclComm_t communicator, void* stream) {
    return collective(communicator, stream, {Kind::gather, root, bytes_of(count, type)}, nullptr, nullptr);
}

FAKE int ncclSend(const void*, size_t, int, int peer, ncclComm_t communicator, void* stream) {
    std::lock_guard guard(mutex());
    Member* members = communicator->members;
    const int rank = communicator->rank;
    const int64_t number = ++communicator->sent[peer];
    return issue(
        stream,
        std::make_unique<Message>(communicator, number, &members[rank].sent[peer], &members[peer].received[rank])
    );
}

FAKE int ncclRecv(void*, size_t, int, int peer, ncclComm_t communicator, void* stream) {
    std::lock_guard guard(mutex());
    Member* members = communicator->members;
    const int rank = communicator->rank;
    const int64_t number = ++communicator->received[peer];
    return issue(
        stream,
        std::make_unique<Message>(communicator, number, &members[rank].received[peer], &members[peer].sent[rank])
    );
}
