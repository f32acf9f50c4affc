StableHLO cannot express `host_callback`
  found:  it calls the program that runs it
  wanted: ops that a program of one executable can express
  cure:   use the host engine, or return the array from the function and print it outside
