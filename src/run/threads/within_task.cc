#include "run/threads/within_task.h"

namespace tessera::run {

namespace {

thread_local int tasks_around = 0;

}  // namespace

WithinTask::WithinTask() { ++tasks_around; }
WithinTask::~WithinTask() { --tasks_around; }
bool WithinTask::is_here() { return tasks_around > 0; }

}  // namespace tessera::run
