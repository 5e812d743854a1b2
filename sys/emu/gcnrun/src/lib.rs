//! Executes the machine code of AMD GPUs on the CPU.
