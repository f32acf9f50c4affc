StableHLO cannot express `transfer`
  found:  it sends data between groups of devices
  wanted: ops that a single executable can express
  cure:   emit the step without a pipeline
