//! AMD SMI: sensors and counters of a GPU.

use std::ffi::c_char;
use std::fmt;
use std::ptr;

use hipvit_sys::AmdSmi;
use hipvit_sys::amd_smi::{
    amdsmi_asic_info_t, amdsmi_clk_type_t, amdsmi_driver_info_t, amdsmi_frequencies_t, amdsmi_init_flags_t,
    amdsmi_link_type_t, amdsmi_memory_type_t, amdsmi_pcie_bandwidth_t, amdsmi_power_info_t,
    amdsmi_processor_handle, amdsmi_status_t, amdsmi_temperature_metric_t, amdsmi_temperature_type_t,
    amdsmi_xgmi_info_t,
};
use serde::Serialize;

use crate::device::Device;
use crate::device::properties::PciAddress;
use crate::device::topology::LinkType;
use crate::error::{Error, Result};
use crate::status::{call, is, missing};

/// Sensors and counters of one GPU, by AMD SMI, or NVML with a provider for CUDA. They cover the whole GPU, for all processes.
///
/// Each query is one reading of the present value. A value that the GPU or its provider does not support is an [`Error::Device`].
/// [`Monitor::readings`] queries everything and skips those.
pub struct Monitor {
    device: Device,
    processor: Processor,
}

/// AMD SMI's handle of a GPU.
#[derive(Clone, Copy)]
struct Processor(amdsmi_processor_handle);

// SAFETY: the handle names a GPU in AMD SMI's tables. AMD SMI locks each GPU, so any thread may use it, also several at once.
unsafe impl Send for Processor {}
// SAFETY: as for `Send`.
unsafe impl Sync for Processor {}

/// All values that a [`Monitor`] can read. `None` for values that the GPU or its provider does not support.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Readings {
    /// [`Monitor::temperature`].
    pub temperature: Option<f64>,
    /// [`Monitor::power`].
    pub power: Option<f64>,
    /// [`Monitor::clock`].
    pub clock: Option<f64>,
    /// [`Monitor::memory_clock`].
    pub memory_clock: Option<f64>,
    /// [`Monitor::utilisation`].
    pub utilisation: Option<f64>,
    /// [`Monitor::memory_used`].
    pub memory_used: Option<u64>,
    /// [`Monitor::pcie_link`].
    pub pcie_link: Option<PcieLink>,
    /// [`Monitor::xgmi_hive`].
    pub xgmi_hive: Option<u64>,
}

/// Present state of a PCIe link. Rate and width fall while the GPU is idle.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PcieLink {
    /// Transfers per second of one PCIe lane, in GT/s.
    pub transfer_rate: f64,
    /// Number of PCIe lanes in use.
    pub width: u32,
}

impl PcieLink {
    /// Returns the maximum bytes per second of the link in one direction, after its encoding, but including packet headers.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        // 8b/10b up to PCIe 2, 128b/130b up to PCIe 5, then FLITs of 242 payload bytes in 256.
        let encoding = match self.transfer_rate {
            ..=5.0 => 8.0 / 10.0,
            ..=32.0 => 128.0 / 130.0,
            _ => 242.0 / 256.0,
        };
        self.transfer_rate * 1e9 * f64::from(self.width) * encoding / 8.0
    }
}

fn table(device: &Device) -> Result<&AmdSmi> {
    device
        .runtime()
        .provider()
        .amd_smi()
        .map_err(|error| missing(&error))
}

/// Initialises AMD SMI for its first monitor. It stays initialised until the process ends, because older releases do not count
/// initialisations, and one monitor's end would end it for all.
fn initialise(device: &Device) -> Result<()> {
    let mut initialised = device.runtime().smi_initialised();
    if !*initialised {
        let (table, flags) = (table(device)?, amdsmi_init_flags_t::AMDSMI_INIT_AMD_GPUS.0);
        // SAFETY: passes a number.
        unsafe { call!(device, table.amdsmi_init(flags.into())) }?;
        *initialised = true;
    }
    Ok(())
}

/// Lists handles with a function of AMD SMI, first their number, then the handles.
fn handles<T: Copy>(null: T, mut list: impl FnMut(&mut u32, *mut T) -> Result<()>) -> Result<Vec<T>> {
    let mut count = 0;
    list(&mut count, ptr::null_mut())?;
    let mut handles = vec![null; count as usize];
    list(&mut count, handles.as_mut_ptr())?;
    handles.truncate(count as usize);
    Ok(handles)
}

/// Queries one value with a function whose last argument is a pointer to it.
macro_rules! query {
    ($monitor:ident, $function:ident($($argument:expr),*)) => {{
        let mut value = Default::default();
        let table = table(&$monitor.device)?;
        // SAFETY: AMD SMI is initialised, and the handle is one of its; the call writes one value.
        unsafe { call!(&$monitor.device, table.$function($monitor.processor.0, $($argument,)* &mut value)) }.map(|()| value)
    }};
}

impl Monitor {
    /// Opens the sensors of `device`, which AMD SMI finds by its PCI address.
    ///
    /// # Errors
    ///
    /// [`Error::Provider`] if AMD SMI cannot be opened; [`Error::Argument`] if it does not list the GPU; [`Error::Device`] if it fails.
    pub fn new(device: &Device) -> Result<Self> {
        let table = table(device)?;
        initialise(device)?;
        let sockets = handles(ptr::null_mut(), |count, to| {
            // SAFETY: `to` is null, or `count` handles may be written.
            unsafe { call!(device, table.amdsmi_get_socket_handles(count, to)) }
        })?;
        let wanted = device.properties().pci;
        let mut listed = 0;
        for socket in sockets {
            let processors = handles(ptr::null_mut(), |count, to| {
                // SAFETY: the socket is one of AMD SMI's. `to` is null, or `count` handles may be written.
                unsafe { call!(device, table.amdsmi_get_processor_handles(socket, count, to)) }
            })?;
            for processor in processors {
                let monitor = Self {
                    device: device.clone(),
                    processor: Processor(processor),
                };
                if monitor.pci()? == wanted {
                    return Ok(monitor);
                }
                listed += 1;
            }
        }
        let reason = format!("AMD SMI lists {listed} GPUs, and none at {wanted}");
        Err(Error::argument("device", reason))
    }

    /// Returns the GPU.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    fn pci(&self) -> Result<PciAddress> {
        let id: u64 = query!(self, amdsmi_get_gpu_bdf_id())?;
        // The domain, a partition, then bus, device and function in PCI's format.
        Ok(PciAddress {
            domain: (id >> 32) as u32,
            bus: (id >> 8 & 0xff) as u32,
            device: (id >> 3 & 0x1f) as u32,
        })
    }

    /// Returns the name of the product.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if AMD SMI fails or does not support it.
    pub fn name(&self) -> Result<String> {
        let info: amdsmi_asic_info_t = query!(self, amdsmi_get_gpu_asic_info())?;
        Ok(string(&info.market_name))
    }

    /// Returns the temperature in °C, of the hottest spot if available, otherwise at the edge.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if AMD SMI fails or does not support it.
    pub fn temperature(&self) -> Result<f64> {
        let now = amdsmi_temperature_metric_t::AMDSMI_TEMP_CURRENT;
        let read = |sensor| -> Result<i64> { query!(self, amdsmi_get_temp_metric(sensor, now)) };
        let degrees = match read(amdsmi_temperature_type_t::AMDSMI_TEMPERATURE_TYPE_HOTSPOT) {
            Err(error) if is_unsupported(&error) => {
                read(amdsmi_temperature_type_t::AMDSMI_TEMPERATURE_TYPE_EDGE)
            }
            read => read,
        }?;
        Ok(degrees as f64)
    }

    /// Returns the power in W, in whole watts.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if AMD SMI fails or does not support it.
    pub fn power(&self) -> Result<f64> {
        let info: amdsmi_power_info_t = query!(self, amdsmi_get_power_info())?;
        // The largest number of 16 bits, of 32, or of 64, replaces a power that the GPU does not report.
        let is_reported = |&watts: &u64| watts < u64::from(u16::MAX);
        let powers = [
            info.socket_power,
            info.current_socket_power.into(),
            info.average_socket_power.into(),
        ];
        let reported = powers.into_iter().find(is_reported);
        reported.map(|watts| watts as f64).ok_or_else(|| Error::Device {
            device: self.device.name().to_owned(),
            call: "amdsmi_get_power_info",
            status: amdsmi_status_t::AMDSMI_STATUS_NOT_SUPPORTED.to_string(),
            advice: String::new(),
        })
    }

    /// Returns the energy in J since some time in the past. The difference of two readings is the energy between them, more accurate than
    /// samples of the power.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if AMD SMI fails or does not support it.
    pub fn energy(&self) -> Result<f64> {
        let table = table(&self.device)?;
        let (mut count, mut microjoules, mut timestamp) = (0u64, 0f32, 0u64);
        // SAFETY: the call writes a counter, the value of one count, and a time.
        unsafe {
            call!(
                &self.device,
                table.amdsmi_get_energy_count(self.processor.0, &mut count, &mut microjoules, &mut timestamp)
            )
        }?;
        Ok(count as f64 * f64::from(microjoules) / 1e6)
    }

    /// Returns the version of the GPU's driver.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if AMD SMI fails or does not support it.
    pub fn driver_version(&self) -> Result<String> {
        let info: amdsmi_driver_info_t = query!(self, amdsmi_get_gpu_driver_info())?;
        Ok(string(&info.driver_version))
    }

    /// Returns the current clock of the compute units in MHz.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if AMD SMI fails or does not support it.
    pub fn clock(&self) -> Result<f64> {
        self.frequency(amdsmi_clk_type_t::AMDSMI_CLK_TYPE_SYS)
    }

    /// Returns the current memory clock in MHz.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if AMD SMI fails or does not support it.
    pub fn memory_clock(&self) -> Result<f64> {
        self.frequency(amdsmi_clk_type_t::AMDSMI_CLK_TYPE_MEM)
    }

    fn frequency(&self, kind: amdsmi_clk_type_t) -> Result<f64> {
        let all: amdsmi_frequencies_t = query!(self, amdsmi_get_clk_freq(kind))?;
        let current = all.frequency.get(all.current as usize).copied().unwrap_or(0);
        Ok(current as f64 / 1e6)
    }

    /// Returns the share of the recent time in which a kernel ran, from 0 to 1.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if AMD SMI fails or does not support it.
    pub fn utilisation(&self) -> Result<f64> {
        let percent: u32 = query!(self, amdsmi_get_gpu_busy_percent())?;
        Ok(f64::from(percent) / 100.0)
    }

    /// Returns the bytes of device memory in use, by all processes.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if AMD SMI fails or does not support it.
    pub fn memory_used(&self) -> Result<u64> {
        query!(
            self,
            amdsmi_get_gpu_memory_usage(amdsmi_memory_type_t::AMDSMI_MEM_TYPE_VRAM)
        )
    }

    /// Returns the bytes of device memory.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if AMD SMI fails or does not support it.
    pub fn memory_total(&self) -> Result<u64> {
        query!(
            self,
            amdsmi_get_gpu_memory_total(amdsmi_memory_type_t::AMDSMI_MEM_TYPE_VRAM)
        )
    }

    /// Returns the current PCIe link.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if AMD SMI fails or does not support it.
    pub fn pcie_link(&self) -> Result<PcieLink> {
        let all: amdsmi_pcie_bandwidth_t = query!(self, amdsmi_get_gpu_pci_bandwidth())?;
        let current = all.transfer_rate.current as usize;
        Ok(PcieLink {
            transfer_rate: all.transfer_rate.frequency.get(current).copied().unwrap_or(0) as f64 / 1e9,
            width: all.lanes.get(current).copied().unwrap_or(0),
        })
    }

    /// Returns the number of the xGMI hive. xGMI links GPUs with the same number. 0 if there is none.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if AMD SMI fails or does not support it.
    pub fn xgmi_hive(&self) -> Result<u64> {
        let info: amdsmi_xgmi_info_t = query!(self, amdsmi_get_xgmi_info())?;
        Ok(info.xgmi_hive_id)
    }

    /// Returns the link between this GPU and another, and its number of hops.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if AMD SMI fails or does not support it.
    pub fn link_to(&self, other: &Self) -> Result<(LinkType, u64)> {
        let table = table(&self.device)?;
        let (mut hops, mut kind) = (0, amdsmi_link_type_t::AMDSMI_LINK_TYPE_UNKNOWN);
        let (here, there) = (self.processor.0, other.processor.0);
        // SAFETY: both handles are AMD SMI's; the call writes a number and a type.
        unsafe {
            call!(
                &self.device,
                table.amdsmi_topo_get_link_type(here, there, &mut hops, &mut kind)
            )
        }?;
        let kind = match kind {
            amdsmi_link_type_t::AMDSMI_LINK_TYPE_PCIE => LinkType::Pcie,
            amdsmi_link_type_t::AMDSMI_LINK_TYPE_XGMI => LinkType::Xgmi,
            other => LinkType::Other(other.0),
        };
        Ok((kind, hops))
    }

    /// Reads all values that the GPU and its provider support.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] for any error but an unsupported value.
    pub fn readings(&self) -> Result<Readings> {
        Ok(Readings {
            temperature: offered(self.temperature())?,
            power: offered(self.power())?,
            clock: offered(self.clock())?,
            memory_clock: offered(self.memory_clock())?,
            utilisation: offered(self.utilisation())?,
            memory_used: offered(self.memory_used())?,
            pcie_link: offered(self.pcie_link())?,
            xgmi_hive: offered(self.xgmi_hive())?,
        })
    }
}

/// Reads a C string in an array, which may lack the terminating zero.
fn string(text: &[c_char]) -> String {
    let bytes: Vec<u8> = text.iter().map(|&c| c as u8).take_while(|&c| c != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn offered<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_unsupported(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_unsupported(error: &Error) -> bool {
    let statuses = [
        amdsmi_status_t::AMDSMI_STATUS_NOT_SUPPORTED,
        amdsmi_status_t::AMDSMI_STATUS_NOT_YET_IMPLEMENTED,
    ];
    matches!(error, Error::Provider { .. }) || statuses.into_iter().any(|status| is(error, status))
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Monitor").field(&self.device).finish()
    }
}
