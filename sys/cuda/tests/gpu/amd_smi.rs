//! AMD SMI: sensors and memory.

use std::ptr;

use hipvit_sys::Error;
use hipvit_sys::amd_smi::{
    amdsmi_clk_type_t, amdsmi_frequencies_t, amdsmi_memory_type_t, amdsmi_power_info_t, amdsmi_status_t,
    amdsmi_temperature_metric_t, amdsmi_temperature_type_t,
};

use crate::Outcome;
use crate::device::{Gpu, ok};

/// Returns a sensor's figure as text. A missing sensor is not a failure.
fn sensor(called: Result<amdsmi_status_t, Error>, figure: impl FnOnce() -> String) -> Result<String, String> {
    match called {
        Ok(amdsmi_status_t::AMDSMI_STATUS_NOT_SUPPORTED) => Ok("-".into()),
        called => ok(called).map(|()| figure()),
    }
}

#[test]
fn sensors_and_memory_are_read() -> Outcome {
    let Some(gpu) = Gpu::open()? else { return Ok(()) };
    let smi = gpu.provider.amd_smi().map_err(|error| error.to_string())?;
    let (mut count, mut temperature, mut used) = (0, 0, 0);
    let (mut socket, mut gpu) = (ptr::null_mut(), ptr::null_mut());
    let (mut clocks, mut power) = (amdsmi_frequencies_t::default(), amdsmi_power_info_t::default());
    let (edge, current) = (
        amdsmi_temperature_type_t::AMDSMI_TEMPERATURE_TYPE_EDGE,
        amdsmi_temperature_metric_t::AMDSMI_TEMP_CURRENT,
    );
    // SAFETY: initialised first, shut down last; each call between writes one value of the type that it is given, and lists at most as
    // many handles as the counts say.
    unsafe {
        ok(smi.amdsmi_init(0))?;
        ok(smi.amdsmi_get_socket_handles(&mut count, ptr::null_mut()))?;
        ok(smi.amdsmi_get_socket_handles(&mut 1, &mut socket))?;
        ok(smi.amdsmi_get_processor_handles(socket, &mut 1, &mut gpu))?;
        ok(smi.amdsmi_get_gpu_memory_usage(gpu, amdsmi_memory_type_t::AMDSMI_MEM_TYPE_VRAM, &mut used))?;
        let measured = smi.amdsmi_get_power_info(gpu, &mut power);
        let power = sensor(measured, || power.socket_power.to_string())?;
        let measured = smi.amdsmi_get_temp_metric(gpu, edge, current, &mut temperature);
        let temperature = sensor(measured, || temperature.to_string())?;
        let measured = smi.amdsmi_get_clk_freq(gpu, amdsmi_clk_type_t::AMDSMI_CLK_TYPE_SYS, &mut clocks);
        let clock = sensor(measured, || (clocks.frequency[0] / 1_000_000).to_string())?;
        ok(smi.amdsmi_shut_down())?;
        println!(
            "{count} devices; the first: {power} W, {temperature} °C, {} MiB used, {clock} MHz",
            used >> 20
        );
    }
    Ok(())
}
