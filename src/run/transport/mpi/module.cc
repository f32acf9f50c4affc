// A module: compiled once for each implementation of MPI.
#include <cstring>
#include <mpi.h>

#include "run/transport/mpi/table.h"

namespace {

static_assert(sizeof(MPI_Request) <= sizeof(TesseraMpiRequest));

MPI_Comm data = MPI_COMM_NULL;
MPI_Comm notes = MPI_COMM_NULL;

MPI_Request load(const TesseraMpiRequest* from) {
  MPI_Request request;
  std::memcpy(&request, from->bytes, sizeof(request));
  return request;
}

void store(MPI_Request request, TesseraMpiRequest* to) {
  std::memcpy(to->bytes, &request, sizeof(request));
}

int start_threads() {
  int provided = MPI_THREAD_SINGLE;
  const int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  if (error != MPI_SUCCESS) return error;
  return provided < MPI_THREAD_SERIALIZED ? MPI_ERR_OTHER : MPI_SUCCESS;
}

int init(int* rank, int* size) {
  int error = start_threads();
  if (error == MPI_SUCCESS) error = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (error == MPI_SUCCESS) error = MPI_Comm_dup(MPI_COMM_WORLD, &data);
  if (error == MPI_SUCCESS) error = MPI_Comm_dup(MPI_COMM_WORLD, &notes);
  if (error == MPI_SUCCESS) error = MPI_Comm_rank(data, rank);
  if (error == MPI_SUCCESS) error = MPI_Comm_size(data, size);
  return error;
}

MPI_Comm comm_of(int channel) { return channel == kTesseraNotes ? notes : data; }

int send(int channel, int to, const void* bytes, int count, TesseraMpiRequest* request) {
  MPI_Request made = MPI_REQUEST_NULL;
  const int error = MPI_Isend(bytes, count, MPI_BYTE, to, channel, comm_of(channel), &made);
  store(made, request);
  return error;
}

int receive(int channel, int from, void* bytes, int count, TesseraMpiRequest* request) {
  MPI_Request made = MPI_REQUEST_NULL;
  const int source = from < 0 ? MPI_ANY_SOURCE : from;
  const int error = MPI_Irecv(bytes, count, MPI_BYTE, source, channel, comm_of(channel), &made);
  store(made, request);
  return error;
}

int test(TesseraMpiRequest* request, int* is_done, int* from, int* count) {
  MPI_Request made = load(request);
  MPI_Status status;
  const int error = MPI_Test(&made, is_done, &status);
  store(made, request);
  if (error != MPI_SUCCESS || *is_done == 0) return error;
  *from = status.MPI_SOURCE;
  return MPI_Get_count(&status, MPI_BYTE, count);
}

void cancel(TesseraMpiRequest* request) {
  MPI_Request made = load(request);
  if (made == MPI_REQUEST_NULL) return;
  MPI_Cancel(&made);
  MPI_Request_free(&made);
}

int allgather(const void* mine, void* all, int count) {
  return MPI_Allgather(mine, count, MPI_BYTE, all, count, MPI_BYTE, data);
}

int finalize() {
  MPI_Comm_free(&notes);
  MPI_Comm_free(&data);
  return MPI_Finalize();
}

void abort_all(int code) { MPI_Abort(MPI_COMM_WORLD, code); }

void error_text(int error, char* text, int size) {
  char whole[MPI_MAX_ERROR_STRING + 1] = "";
  int length = 0;
  MPI_Error_string(error, whole, &length);
  std::strncpy(text, whole, static_cast<std::size_t>(size - 1));
  text[size - 1] = '\0';
}

#if defined(OPEN_MPI)
constexpr const char* kName = "Open MPI";
#elif defined(MPICH_VERSION)
constexpr const char* kName = "MPICH";
#else
constexpr const char* kName = "MPI";
#endif

constexpr TesseraMpi kTable = {
    .version = kTesseraMpiVersion,
    .name = kName,
    .init = init,
    .send = send,
    .receive = receive,
    .test = test,
    .cancel = cancel,
    .allgather = allgather,
    .finalize = finalize,
    .abort = abort_all,
    .error_text = error_text,
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const TesseraMpi* tessera_mpi() {
  return &kTable;
}
