//! The command line: arguments in, library calls, text out.

fn main() {}
