StableHLO cannot express `task`
  found:  a task runs on one of several groups of devices
  wanted: ops that a single executable can express
  cure:   emit the step without a pipeline
