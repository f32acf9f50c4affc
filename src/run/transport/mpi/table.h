// The part of an MPI library that a module offers. Each implementation of MPI has its own mpi.h and
// its own module, which is loaded only when it is needed, so nothing else depends on MPI.
#pragma once

extern "C" {

enum { kTesseraMpiVersion = 1 };

/// Messages of one channel between two processes keep their order.
enum TesseraMpiChannel { kTesseraHeads, kTesseraBodies, kTesseraNotes };

/// Holds an MPI_Request.
struct TesseraMpiRequest {
  alignas(8) unsigned char bytes[8];
};

/// Functions that return an int return 0 or an MPI error. Calls come from one thread at a time.
struct TesseraMpi {
  int version;       // kTesseraMpiVersion
  const char* name;  // of the implementation
  int (*init)(int* rank, int* size);
  int (*send)(int channel, int to, const void* bytes, int count, TesseraMpiRequest* request);
  /// `from` is -1 for any process.
  int (*receive)(int channel, int from, void* bytes, int count, TesseraMpiRequest* request);
  /// When the request is done, gives the sender and size of a received message.
  int (*test)(TesseraMpiRequest* request, int* is_done, int* from, int* count);
  /// Cancels a receive that no message has matched.
  void (*cancel)(TesseraMpiRequest* request);
  int (*allgather)(const void* mine, void* all, int count);
  int (*finalize)(void);
  void (*abort)(int code);
  /// Writes at most `size` characters, with the final zero.
  void (*error_text)(int error, char* text, int size);
};

/// The symbol that a module exports.
const TesseraMpi* tessera_mpi(void);
using TesseraMpiSymbol = const TesseraMpi*();
}
