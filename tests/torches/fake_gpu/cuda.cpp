// A CUDA runtime without a GPU, so that torch's own ProcessGroupNCCL, watchdog, flight recorder and worker server run on a CPU: a tool of
// the tests, preloaded (LD_PRELOAD) into a CUDA build of torch together with nccl.cpp. build_fake_gpu.py builds both.
//
// Memory of the device is memory of the host. Streams and events keep CUDA's order. Copies are real, and made when their stream comes
// to them. As with CUDA, a launch blocks when a stream holds 1024 operations that are not over.
//
// What it cannot show:
//   * any value that a kernel computes: kernels and cuBLAS do nothing, and what they should have written stays as it was (zeros at first);
//   * times: a kernel takes none, and a copy is as fast as the host's memory;
//   * what a driver does: stalls of its own, XIDs, resets, NVML. (FAKE_GPU_STUCK_WHILE names a file: while it exists, cudaEventQuery does
//     not return, which is how upstream describes a driver that hangs.)
//   * graphs, IPC, peer access, streams that wait for the default stream, more than one device in one process.
// What a collective cannot show stands in nccl.cpp.
//
// For a test's script, by ctypes.CDLL(None): fake_gpu_block_stream(stream), a kernel that never ends.

#include "streams.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <iterator>
#include <map>
#include <set>
#include <string>

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <unistd.h>

namespace fake {

class Stream {
  public:
    std::deque<Batch> queue;
};

struct Event {
    int64_t recorded = 0; // how often cudaEventRecord was called
    int64_t reached = 0;  // the last of those that its stream has come to
    double reached_ms = 0;
};

namespace {

constexpr int DEVICES = 16;
constexpr size_t LAUNCH_LIMIT = 1024;
constexpr useconds_t PAUSE_MICROSECONDS = 500;

double now_ms() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

class Kernel : public Operation {
    bool try_to_end() override { return true; }
};

class NeverEnds : public Operation {
    bool try_to_end() override { return false; }
};

class RecordEvent : public Operation {
  public:
    RecordEvent(Event* event, int64_t generation) : event_(event), generation_(generation) {}

  private:
    bool try_to_end() override {
        event_->reached = generation_;
        event_->reached_ms = now_ms();
        return true;
    }
    Event* event_;
    int64_t generation_;
};

class WaitForEvent : public Operation {
  public:
    WaitForEvent(Event* event, int64_t generation) : event_(event), generation_(generation) {}

  private:
    bool try_to_end() override { return event_->reached >= generation_; }
    Event* event_;
    int64_t generation_;
};

class Copy : public Operation {
  public:
    Copy(void* to, const void* from, size_t bytes) : to_(to), from_(from), bytes_(bytes) {}

  private:
    bool try_to_end() override {
        memmove(to_, from_, bytes_);
        return true;
    }
    void* to_;
    const void* from_;
    size_t bytes_;
};

// From memory of the host, which its owner may write again as soon as the call is over: read at once.
class CopyFromHost : public Operation {
  public:
    CopyFromHost(void* to, const void* from, size_t bytes) : to_(to), content_(static_cast<const char*>(from), bytes) {}

  private:
    bool try_to_end() override {
        memcpy(to_, content_.data(), content_.size());
        return true;
    }
    void* to_;
    std::string content_;
};

class Fill : public Operation {
  public:
    Fill(void* to, int value, size_t bytes) : to_(to), value_(value), bytes_(bytes) {}

  private:
    bool try_to_end() override {
        memset(to_, value_, bytes_);
        return true;
    }
    void* to_;
    int value_;
    size_t bytes_;
};

class CallOnHost : public Operation {
  public:
    CallOnHost(cudaHostFn_t function, void* argument) : function_(function), argument_(argument) {}

  private:
    bool try_to_end() override {
        function_(argument_);
        return true;
    }
    cudaHostFn_t function_;
    void* argument_;
};

std::set<Stream*>& streams() {
    static auto* all = new std::set<Stream*>; // never destroyed: threads of torch outlive static objects
    return *all;
}

Stream* new_stream() {
    auto* stream = new Stream;
    streams().insert(stream);
    return stream;
}

Stream* default_stream() {
    static Stream* stream = new_stream();
    return stream;
}

bool front_is_over(Stream* stream) {
    bool over = true;
    for (auto& operation : stream->queue.front())
        over &= operation->advance();
    return over;
}

bool is_idle(Stream* stream) {
    std::lock_guard guard(mutex());
    advance_all();
    return stream->queue.empty();
}

bool all_are_idle() {
    std::lock_guard guard(mutex());
    advance_all();
    for (Stream* stream : streams())
        if (!stream->queue.empty())
            return false;
    return true;
}

cudaError_t launch(void* handle) {
    Stream* stream = stream_of(handle);
    put(stream, batch_of<Kernel>());
    for (;;) {
        {
            std::lock_guard guard(mutex());
            advance_all();
            if (stream->queue.size() < LAUNCH_LIMIT)
                return cudaSuccess;
        }
        wait_a_moment();
    }
}

struct Allocation {
    size_t bytes;
    cudaMemoryType kind;
};

std::map<const char*, Allocation>& allocations() {
    static auto* all = new std::map<const char*, Allocation>;
    return *all;
}

cudaError_t allocate(void** pointer, size_t bytes, cudaMemoryType kind) {
    if (posix_memalign(pointer, 512, bytes ? bytes : 1))
        return cudaErrorMemoryAllocation;
    memset(*pointer, 0, bytes);
    std::lock_guard guard(mutex());
    allocations()[static_cast<const char*>(*pointer)] = {bytes, kind};
    return cudaSuccess;
}

// Of what an address is a part.
cudaMemoryType kind_of(const void* pointer) {
    std::lock_guard guard(mutex());
    auto after = allocations().upper_bound(static_cast<const char*>(pointer));
    if (after == allocations().begin())
        return cudaMemoryTypeUnregistered;
    const auto& [begin, allocation] = *std::prev(after);
    return static_cast<const char*>(pointer) < begin + allocation.bytes ? allocation.kind : cudaMemoryTypeUnregistered;
}

cudaError_t copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, void* handle) {
    Stream* stream = stream_of(handle);
    if (kind == cudaMemcpyHostToDevice)
        put(stream, batch_of<CopyFromHost>(to, from, bytes));
    else
        put_copy(stream, to, from, bytes);
    return cudaSuccess;
}

cudaError_t make_stream(cudaStream_t* stream) {
    std::lock_guard guard(mutex());
    *stream = reinterpret_cast<cudaStream_t>(new_stream());
    return cudaSuccess;
}

Event* event_of(cudaEvent_t event) { return reinterpret_cast<Event*>(event); }

} // namespace

std::recursive_mutex& mutex() {
    static auto* guard = new std::recursive_mutex;
    return *guard;
}

Stream* stream_of(void* handle) {
    std::lock_guard guard(mutex());
    const bool is_default = reinterpret_cast<uintptr_t>(handle) < 16; // null, cudaStreamLegacy, cudaStreamPerThread
    return is_default ? default_stream() : static_cast<Stream*>(handle);
}

void put(Stream* stream, Batch batch) {
    std::lock_guard guard(mutex());
    stream->queue.push_back(std::move(batch));
    advance_all();
}

void put_copy(Stream* stream, void* to, const void* from, size_t bytes) {
    put(stream, batch_of<Copy>(to, from, bytes));
}

void advance_all() {
    std::lock_guard guard(mutex());
    for (bool moved = true; moved;) {
        moved = false;
        for (Stream* stream : streams())
            while (!stream->queue.empty() && front_is_over(stream)) {
                stream->queue.pop_front();
                moved = true;
            }
    }
}

void wait_a_moment() { usleep(PAUSE_MICROSECONDS); }

} // namespace fake

using namespace fake;

FAKE void fake_gpu_block_stream(void* stream) { put(stream_of(stream), batch_of<NeverEnds>()); }

// ---- The device

static thread_local int current_device = 0;

FAKE cudaError_t cudaGetDeviceCount(int* count) {
    *count = DEVICES;
    return cudaSuccess;
}

FAKE cudaError_t cudaGetDevice(int* device) {
    *device = current_device;
    return cudaSuccess;
}

FAKE cudaError_t cudaSetDevice(int device) {
    current_device = device;
    return cudaSuccess;
}

FAKE cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    *properties = {};
    snprintf(properties->name, sizeof properties->name, "fake GPU %d", device);
    properties->totalGlobalMem = 8ull << 30;
    properties->major = 9;
    properties->multiProcessorCount = 132;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = 1024;
    properties->maxThreadsPerMultiProcessor = 2048;
    properties->sharedMemPerBlock = 48 << 10;
    properties->sharedMemPerBlockOptin = 227 << 10;
    properties->sharedMemPerMultiprocessor = 228 << 10;
    properties->regsPerBlock = properties->regsPerMultiprocessor = 1 << 16;
    properties->maxGridSize[0] = INT32_MAX;
    properties->maxGridSize[1] = properties->maxGridSize[2] = (1 << 16) - 1;
    properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = 1024;
    properties->maxThreadsDim[2] = 64;
    properties->unifiedAddressing = properties->canMapHostMemory = properties->concurrentKernels = 1;
    properties->textureAlignment = 512;
    properties->pciBusID = device + 1;
    properties->l2CacheSize = 50 << 20;
    return cudaSuccess;
}

FAKE cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
    switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
    case cudaDevAttrMultiProcessorCount: *value = 132; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = 48 << 10; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 227 << 10; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = 228 << 10; break;
    case cudaDevAttrMaxRegistersPerBlock: *value = 1 << 16; break;
    default: *value = 1;
    }
    return cudaSuccess;
}

FAKE cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
    snprintf(text, length, "0000:%02x:00.0", device + 1);
    return cudaSuccess;
}

FAKE cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return cudaSuccess;
}

FAKE cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
    *can = 0;
    return cudaSuccess;
}

FAKE cudaError_t cudaDeviceSynchronize() {
    while (!all_are_idle())
        wait_a_moment();
    return cudaSuccess;
}

FAKE cudaError_t cudaDriverGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

FAKE cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

FAKE cudaError_t cudaGetLastError() { return cudaSuccess; }
FAKE cudaError_t cudaPeekAtLastError() { return cudaSuccess; }

// ---- The driver. torch asks for its functions by name. build_fake_gpu.py makes one that succeeds and does nothing of each name that this
// torch has, but for these.

FAKE int cuCtxGetCurrent(void** context) {
    *context = &current_device;
    return 0;
}

FAKE int cuDevicePrimaryCtxGetState(int, unsigned* flags, int* active) {
    if (flags) *flags = 0;
    if (active) *active = 1;
    return 0;
}

static int succeed() { return 0; }

static cudaError_t driver_function(const char* name, void** function, cudaDriverEntryPointQueryResult* result) {
    void* found = dlsym(RTLD_DEFAULT, name);
    *function = found ? found : reinterpret_cast<void*>(succeed);
    if (result) *result = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}

#if CUDART_VERSION >= 12050
FAKE cudaError_t cudaGetDriverEntryPointByVersion(
    const char* name, void** function, unsigned, unsigned long long, cudaDriverEntryPointQueryResult* result
) {
    return driver_function(name, function, result);
}
#endif
#if CUDART_VERSION < 13000
#undef cudaGetDriverEntryPoint
FAKE cudaError_t cudaGetDriverEntryPoint(
    const char* name, void** function, unsigned long long, cudaDriverEntryPointQueryResult* result
) {
    return driver_function(name, function, result);
}
#endif

// ---- Memory. Nothing is given back: an operation that is still queued may need it, and a test is short.

FAKE cudaError_t cudaMalloc(void** pointer, size_t bytes) { return allocate(pointer, bytes, cudaMemoryTypeDevice); }
FAKE cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t) { return cudaMalloc(pointer, bytes); }
FAKE cudaError_t cudaMallocHost(void** pointer, size_t bytes) { return allocate(pointer, bytes, cudaMemoryTypeHost); }
FAKE cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) { return cudaMallocHost(pointer, bytes); }
FAKE cudaError_t cudaFree(void*) { return cudaSuccess; }
FAKE cudaError_t cudaFreeAsync(void*, cudaStream_t) { return cudaSuccess; }
FAKE cudaError_t cudaFreeHost(void*) { return cudaSuccess; }
FAKE cudaError_t cudaHostRegister(void*, size_t, unsigned) { return cudaSuccess; }
FAKE cudaError_t cudaHostUnregister(void*) { return cudaSuccess; }

FAKE cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
    *free = 7ull << 30;
    *total = 8ull << 30;
    return cudaSuccess;
}

FAKE cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
    *attributes = {};
    attributes->type = kind_of(pointer);
    attributes->device = current_device;
    attributes->devicePointer = attributes->hostPointer = const_cast<void*>(pointer);
    return cudaSuccess;
}

FAKE cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    return copy(to, from, bytes, kind, stream);
}

FAKE cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, cudaStream_t stream) {
    return copy(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}

FAKE cudaError_t cudaMemcpy2DAsync(
    void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, cudaMemcpyKind kind,
    cudaStream_t stream
) {
    for (size_t row = 0; row < height; row++)
        copy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width, kind, stream);
    return cudaSuccess;
}

FAKE cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
    cudaDeviceSynchronize();
    memmove(to, from, bytes);
    return cudaSuccess;
}

FAKE cudaError_t cudaMemset(void* to, int value, size_t bytes) {
    cudaDeviceSynchronize();
    memset(to, value, bytes);
    return cudaSuccess;
}

FAKE cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
    put(stream_of(stream), batch_of<Fill>(to, value, bytes));
    return cudaSuccess;
}

FAKE cudaError_t cudaMemcpyToSymbol(const void*, const void*, size_t, size_t, cudaMemcpyKind) { return cudaSuccess; }

// ---- Kernels

FAKE cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t stream) { return launch(stream); }
FAKE cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void*, void**) { return launch(config->stream); }
#if CUDART_VERSION >= 13000
FAKE cudaError_t __cudaLaunchKernel(void*, dim3, dim3, void**, size_t, cudaStream_t stream) { return launch(stream); }
FAKE cudaError_t __cudaGetKernel(void** kernel, const void* function) {
    *kernel = const_cast<void*>(function);
    return cudaSuccess;
}
#endif

FAKE cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
    *attributes = {};
    attributes->maxThreadsPerBlock = 1024;
    attributes->numRegs = 32;
    attributes->binaryVersion = attributes->ptxVersion = 90;
    return cudaSuccess;
}

FAKE cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }

FAKE cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, size_t) {
    *blocks = 2;
    return cudaSuccess;
}

FAKE cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int, size_t, unsigned) {
    *blocks = 2;
    return cudaSuccess;
}

FAKE cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
    put(stream_of(stream), batch_of<CallOnHost>(function, argument));
    return cudaSuccess;
}

// Every other function of cuBLAS is one that succeeds and does nothing; build_fake_gpu.py makes them. This one says that a way was found.
FAKE int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int, void*, int* found) {
    *found = 1;
    return 0;
}

// ---- Streams

FAKE cudaError_t cudaStreamCreate(cudaStream_t* stream) { return make_stream(stream); }
FAKE cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return make_stream(stream); }
FAKE cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) { return make_stream(stream); }
FAKE cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }

FAKE cudaError_t cudaStreamGetPriority(cudaStream_t, int* priority) {
    *priority = 0;
    return cudaSuccess;
}

FAKE cudaError_t cudaStreamQuery(cudaStream_t stream) { return is_idle(stream_of(stream)) ? cudaSuccess : cudaErrorNotReady; }

FAKE cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    while (!is_idle(stream_of(stream)))
        wait_a_moment();
    return cudaSuccess;
}

FAKE cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    std::lock_guard guard(mutex());
    if (event_of(event)->reached < event_of(event)->recorded)
        put(stream_of(stream), batch_of<WaitForEvent>(event_of(event), event_of(event)->recorded));
    return cudaSuccess;
}

// Nothing is ever captured into a graph.
static cudaError_t not_capturing(cudaStreamCaptureStatus* status, unsigned long long* id) {
    *status = cudaStreamCaptureStatusNone;
    if (id) *id = 0;
    return cudaSuccess;
}

FAKE cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) { return not_capturing(status, nullptr); }
FAKE cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }
#if CUDART_VERSION >= 13000
FAKE cudaError_t cudaStreamGetCaptureInfo(
    cudaStream_t, cudaStreamCaptureStatus* status, unsigned long long* id, cudaGraph_t*, const cudaGraphNode_t**,
    const cudaGraphEdgeData**, size_t*
) {
    return not_capturing(status, id);
}
#else
#undef cudaStreamGetCaptureInfo
#undef cudaStreamGetCaptureInfo_v2
FAKE cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus* status, unsigned long long* id) {
    return not_capturing(status, id);
}
FAKE cudaError_t cudaStreamGetCaptureInfo_v2(
    cudaStream_t, cudaStreamCaptureStatus* status, unsigned long long* id, cudaGraph_t*, const cudaGraphNode_t**, size_t*
) {
    return not_capturing(status, id);
}
#endif

// ---- Events

FAKE cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
    *event = reinterpret_cast<cudaEvent_t>(new Event);
    return cudaSuccess;
}

FAKE cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
FAKE cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; } // a queued operation may still name it

FAKE cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    std::lock_guard guard(mutex());
    put(stream_of(stream), batch_of<RecordEvent>(event_of(event), ++event_of(event)->recorded));
    return cudaSuccess;
}

FAKE cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
    return cudaEventRecord(event, stream);
}

FAKE cudaError_t cudaEventQuery(cudaEvent_t event) {
    static const char* stuck_while = getenv("FAKE_GPU_STUCK_WHILE");
    while (stuck_while && access(stuck_while, F_OK) == 0)
        wait_a_moment();
    std::lock_guard guard(mutex());
    advance_all();
    return event_of(event)->reached >= event_of(event)->recorded ? cudaSuccess : cudaErrorNotReady;
}

FAKE cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    while (cudaEventQuery(event) != cudaSuccess)
        wait_a_moment();
    return cudaSuccess;
}

FAKE cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
    *milliseconds = static_cast<float>(event_of(to)->reached_ms - event_of(from)->reached_ms);
    return cudaSuccess;
}
