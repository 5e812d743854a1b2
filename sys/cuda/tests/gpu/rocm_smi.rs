//! ROCm SMI: sensors and memory.

use hipvit_sys::Error;
use hipvit_sys::rocm_smi::{
    rsmi_clk_type_t, rsmi_frequencies_t, rsmi_memory_type_t, rsmi_status_t, rsmi_temperature_metric_t,
};

use crate::Outcome;
use crate::device::{Gpu, ok};

/// Returns a sensor's figure as text. A missing sensor is not a failure.
fn sensor(called: Result<rsmi_status_t, Error>, figure: impl FnOnce() -> String) -> Result<String, String> {
    match called {
        Ok(rsmi_status_t::RSMI_STATUS_NOT_SUPPORTED) => Ok("-".into()),
        called => ok(called).map(|()| figure()),
    }
}

#[test]
fn sensors_and_memory_are_read() -> Outcome {
    let Some(gpu) = Gpu::open()? else { return Ok(()) };
    let smi = gpu.provider.rocm_smi().map_err(|error| error.to_string())?;
    let (mut count, mut power, mut temperature, mut used) = (0, 0, 0, 0);
    let mut clocks = rsmi_frequencies_t::default();
    let (current, system) = (
        rsmi_temperature_metric_t::RSMI_TEMP_CURRENT,
        rsmi_clk_type_t::RSMI_CLK_TYPE_SYS,
    );
    // SAFETY: initialised first, shut down last; each call between writes one value of the type that it is given.
    unsafe {
        ok(smi.rsmi_init(0))?;
        ok(smi.rsmi_num_monitor_devices(&mut count))?;
        ok(smi.rsmi_dev_memory_usage_get(0, rsmi_memory_type_t::RSMI_MEM_TYPE_VRAM, &mut used))?;
        let measured = smi.rsmi_dev_power_ave_get(0, 0, &mut power);
        let power = sensor(measured, || format!("{:.0}", power as f64 / 1e6))?;
        let measured = smi.rsmi_dev_temp_metric_get(0, 0, current, &mut temperature);
        let temperature = sensor(measured, || (temperature / 1000).to_string())?;
        let measured = smi.rsmi_dev_gpu_clk_freq_get(0, system, &mut clocks);
        let clock = sensor(measured, || (clocks.frequency[0] / 1_000_000).to_string())?;
        ok(smi.rsmi_shut_down())?;
        println!(
            "{count} devices; the first: {power} W, {temperature} °C, {} MiB used, {clock} MHz",
            used >> 20
        );
    }
    Ok(())
}
