StableHLO cannot express `transfer`
  found:  it sends data between groups of devices
  wanted: ops that a program of one executable can express
  cure:   emit the step without a pipeline
