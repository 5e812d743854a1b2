//! Tests on the fake GPU (`tests/fake/provider`): the safe HIP layer, executors, commands and servers, and
//! their messages on failures.
#![allow(unsafe_code, reason = "tests call the unsafe functions of the safe HIP layer")]

mod comm;
mod command_line;
mod completions;
mod counters;
mod devices;
mod faults;
mod lent;
mod memory;
mod overlap;
mod parallel;
mod peers;
mod processes;
mod profile;
mod replicas;
mod rtc;
mod serve;
mod serve_divided;
mod session;
mod states;
mod unified;
mod validate;
mod work;
