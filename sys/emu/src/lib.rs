//! A GPU made of software, behind the C interface of ROCm.
