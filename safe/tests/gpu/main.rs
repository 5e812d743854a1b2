//! Every type of this crate on a device: the first of the provider that `HIPVIT_PROVIDER` names, or of ROCm.
//!
//!     cargo test -p hip-safe --test gpu -- --nocapture --test-threads 1
//!     HIPVIT_PROVIDER=emu:gfx942 cargo test -p hip-safe --test gpu    # on an emulated GPU
//!
//! Without a GPU the tests are skipped with one line; `HIPVIT_REQUIRE_GPU` makes that a failure. What a provider does not
//! offer is skipped too, with a line of its own.
#![allow(unsafe_code, reason = "kernels are trusted once")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod comm;
mod dnn;
mod gemm;
mod graph;
mod kernels;
mod memory;
mod monitor;
mod peers;
mod processes;
mod scale;
mod sparse;
mod streams;
mod structure;

use std::env;
use std::io::{self, Write as _};
use std::sync::Once;
use std::time::Instant;

use half::{bf16, f16};
use hip_safe::{DType, Device, Error, Runtime};
use parking_lot::Mutex;

/// Measurement or comparison of a check, for the log.
type Check = Result<String, Box<dyn std::error::Error>>;

/// A test for each check.
macro_rules! checks {
    ($($name:ident: $check:expr;)*) => {$(
        #[test]
        fn $name() {
            run(stringify!($name), $check);
        }
    )*};
}

checks! {
    buffers_are_copied_up_down_and_across: memory::buffers;
    a_pinned_ring_overlaps_copies: memory::pinned_ring;
    events_order_and_time_streams: memory::events;
    a_frozen_buffer_is_read_on_four_threads: memory::frozen;
    ten_thousand_allocations_leave_memory_flat: memory::pool;
    out_of_memory_is_an_error: memory::out_of_memory;
    a_thread_is_bound_to_the_gpus_node: memory::bind_thread;
    streams_have_priorities: streams::priorities;
    streams_have_masks_of_compute_units: streams::compute_units;
    a_compile_error_has_a_log: structure::compile_error;
    a_kernel_with_a_structure_is_launched: structure::kernel;
    dynamic_lds_is_given_up_to_the_limit: structure::dynamic_lds;
    saxpy_is_launched_with_arguments_one_by_one: kernels::saxpy;
    a_typed_launch_is_checked: kernels::typed;
    wrong_parameters_are_named: kernels::parameters;
    templates_are_found_by_name_expressions: kernels::templates;
    compiled_templates_are_cached_with_their_names: kernels::cached;
    globals_are_read_and_written: kernels::globals;
    attributes_and_occupancy_are_told: kernels::attributes;
    a_graph_is_replayed: graph::graph;
    buffers_are_copied_between_two_gpus: peers::peers;
    one_rank_communicates_with_itself: comm::one_rank;
    two_gpus_communicate: comm::two_gpus;
    two_ranks_find_each_other_by_an_id: comm::by_id;
    a_rank_that_is_left_alone_is_aborted: comm::left_alone;
    calls_that_differ_are_named: comm::mismatch;
    an_id_whose_ranks_do_not_come_times_out: comm::missing;
    processes_communicate: processes::several;
    a_process_that_ends_is_an_error_of_the_others: processes::lost;
    all_reduces_are_divided_among_hosts: processes::nodes;
    hosts_communicate: processes::two_hosts;
    sensors_are_read: monitor::monitor;
    gemm_f32: |device| gemm::blas::<f32>(device, DType::F32);
    gemm_f16: |device| gemm::blas::<f16>(device, DType::F16);
    gemm_bf16: |device| gemm::blas::<bf16>(device, DType::BF16);
    hipblaslt_adds_bias_and_gelu: gemm::blas_lt;
    hipblaslt_keeps_the_operand_of_gelu_for_its_gradient: gemm::blas_lt_aux;
    hipblaslt_multiplies_e4m3_by_scales: gemm::blas_lt_float8;
    hipblaslt_gives_the_largest_magnitude: gemm::blas_lt_amax;
    hipsparselt_multiplies_compressed_weights: sparse::sparse_lt;
    miopen_softmax: dnn::softmax;
    miopen_layer_norm: dnn::layer_norm;
    miopen_convolution: dnn::convolution;
    miopen_convolution_channels_last: dnn::convolution_channels_last;
    miopen_relayout: dnn::relayout;
    miopen_attention: dnn::attention;
}

/// Runs a check on the first device, alone: some look at the device's memory.
fn run(name: &str, check: impl FnOnce(&Device) -> Check) {
    static ALONE: Mutex<()> = Mutex::new(());
    static SAID: Once = Once::new();
    let _alone = ALONE.lock();
    let device = match Runtime::open().and_then(|runtime| runtime.device(0)) {
        Ok(device) => device,
        Err(error) => {
            assert!(env::var_os("HIPVIT_REQUIRE_GPU").is_none(), "{error}");
            SAID.call_once(|| skip(&format!("there is no GPU ({error})")));
            return;
        }
    };
    let start = Instant::now();
    match check(&device) {
        Ok(note) => println!("{name}: {note} ({:.0} ms)", start.elapsed().as_secs_f64() * 1e3),
        Err(error) if is_absent(error.as_ref()) => skip(&format!("{name}: {error}")),
        Err(error) => panic!("{}: {error}", device.name()),
    }
}

/// Past the test harness, which keeps what passing tests print.
fn skip(cause: &str) {
    let _ = writeln!(io::stderr(), "skipped: {cause}");
}

/// A provider need not offer everything.
fn is_absent(error: &(dyn std::error::Error + 'static)) -> bool {
    match error.downcast_ref() {
        Some(Error::Provider { .. }) => true,
        Some(Error::Device { advice, .. }) => advice.contains("does not offer"),
        _ => error.is::<Absent>(),
    }
}

/// A requirement of a check that this machine lacks.
#[derive(Debug)]
pub(crate) struct Absent(pub(crate) &'static str);

impl std::fmt::Display for Absent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Absent {}

pub(crate) fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

/// Numbers in [-1, 1] from a linear congruence.
pub(crate) fn numbers(len: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(747_796_405) | 1;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

pub(crate) fn worst(actual: impl IntoIterator<Item = f64>, expected: &[f64]) -> f64 {
    let errors = actual.into_iter().zip(expected).map(|(a, e)| (a - e).abs());
    errors.fold(0.0, |worst, e| if e.is_nan() { f64::NAN } else { worst.max(e) })
}

pub(crate) fn within(error: f64, bound: f64) -> Check {
    // A NaN is within nothing.
    ensure(error <= bound, || format!("error {error:.2e} above {bound:.2e}"))?;
    Ok(format!("error {error:.1e} of {bound:.1e}"))
}
