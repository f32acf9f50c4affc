// Has no code: its target owns the precompiled headers of all test programs.
