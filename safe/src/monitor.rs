//! ROCm SMI: sensors and counters of a GPU.

use std::ffi::c_char;
use std::fmt;
use std::mem::MaybeUninit;

use hipvit_sys::RocmSmi;
use hipvit_sys::rocm_smi::{
    RSMI_IO_LINK_TYPE, RSMI_POWER_TYPE, rsmi_clk_type_t, rsmi_frequencies_t, rsmi_memory_type_t,
    rsmi_pcie_bandwidth_t, rsmi_status_t, rsmi_sw_component_t, rsmi_temperature_metric_t,
};
use serde::Serialize;

use crate::device::Device;
use crate::device::properties::PciAddress;
use crate::device::topology::LinkType;
use crate::error::{Error, Result};
use crate::status::{call, is, missing};

/// Sensors and counters of one GPU, by ROCm SMI, or NVML with a provider for CUDA. They cover the whole GPU, for all processes.
///
/// Each query is one reading of the present value. A value that the GPU or its provider does not support is an [`Error::Device`].
/// [`Monitor::readings`] queries everything and skips those.
pub struct Monitor {
    device: Device,
    /// SMI's index, which may differ from HIP's.
    index: u32,
}

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

fn table(device: &Device) -> Result<&RocmSmi> {
    device
        .runtime()
        .provider()
        .rocm_smi()
        .map_err(|error| missing(&error))
}

/// Queries one number.
macro_rules! number {
    ($monitor:ident, $function:ident($($argument:expr),*)) => {{
        let mut value = Default::default();
        let table = table(&$monitor.device)?;
        // SAFETY: SMI is initialised; the call writes one number.
        unsafe { call!(&$monitor.device, table.$function($monitor.index, $($argument,)* &mut value)) }.map(|()| value)
    }};
}

impl Monitor {
    /// Opens the sensors of `device`, which SMI finds by its PCI address.
    ///
    /// # Errors
    ///
    /// [`Error::Provider`] if ROCm SMI cannot be opened; [`Error::Argument`] if it does not list the GPU; [`Error::Device`] if it fails.
    pub fn new(device: &Device) -> Result<Self> {
        let table = table(device)?;
        // SAFETY: passes a number. Each call is counted, and undone by a call of `rsmi_shut_down`.
        unsafe { call!(device, table.rsmi_init(0)) }?;
        let mut monitor = Self {
            device: device.clone(),
            index: 0,
        };
        let mut count = 0;
        // SAFETY: the call writes one number.
        unsafe { call!(device, table.rsmi_num_monitor_devices(&mut count)) }?;
        let wanted = device.properties().pci;
        for index in 0..count {
            monitor.index = index;
            if monitor.pci()? == wanted {
                return Ok(monitor);
            }
        }
        let reason = format!("ROCm SMI lists {count} GPUs, and none at {wanted}");
        Err(Error::argument("device", reason))
    }

    /// Returns the GPU.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    fn pci(&self) -> Result<PciAddress> {
        let id: u64 = number!(self, rsmi_dev_pci_id_get())?;
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
    /// [`Error::Device`] if ROCm SMI fails or does not support it.
    pub fn name(&self) -> Result<String> {
        let mut text = [0 as c_char; 256];
        let table = table(&self.device)?;
        // SAFETY: the call writes at most as many characters as its arguments say.
        unsafe {
            call!(
                &self.device,
                table.rsmi_dev_name_get(self.index, text.as_mut_ptr(), text.len())
            )
        }?;
        Ok(string(&text))
    }

    /// Returns the temperature in °C, of the hottest spot if available, otherwise at the edge.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if ROCm SMI fails or does not support it.
    pub fn temperature(&self) -> Result<f64> {
        // rsmi_temperature_type_t, which is in no prototype.
        const EDGE: u32 = 0;
        const JUNCTION: u32 = 1;
        let now = rsmi_temperature_metric_t::RSMI_TEMP_CURRENT;
        let millidegrees: i64 = match number!(self, rsmi_dev_temp_metric_get(JUNCTION, now)) {
            Err(error) if is_unsupported(&error) => number!(self, rsmi_dev_temp_metric_get(EDGE, now)),
            read => read,
        }?;
        Ok(millidegrees as f64 / 1e3)
    }

    /// Returns the power in W.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if ROCm SMI fails or does not support it.
    pub fn power(&self) -> Result<f64> {
        let table = table(&self.device)?;
        let (mut microwatts, mut kind) = (0u64, RSMI_POWER_TYPE(0));
        // SAFETY: the call writes a number and the kind of power.
        let read = unsafe {
            call!(
                &self.device,
                table.rsmi_dev_power_get(self.index, &mut microwatts, &mut kind)
            )
        };
        let microwatts = match read {
            Ok(()) => microwatts,
            // Before ROCm 5.7.
            Err(error) if is_unsupported(&error) => number!(self, rsmi_dev_power_ave_get(0))?,
            Err(error) => return Err(error),
        };
        Ok(microwatts as f64 / 1e6)
    }

    /// Returns the energy in J since some time in the past. The difference of two readings is the energy between them, more accurate than
    /// samples of the power.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if ROCm SMI fails or does not support it.
    pub fn energy(&self) -> Result<f64> {
        let table = table(&self.device)?;
        let (mut count, mut microjoules, mut timestamp) = (0u64, 0f32, 0u64);
        // SAFETY: the call writes a counter, the value of one count, and a time.
        unsafe {
            call!(
                &self.device,
                table.rsmi_dev_energy_count_get(self.index, &mut count, &mut microjoules, &mut timestamp)
            )
        }?;
        Ok(count as f64 * f64::from(microjoules) / 1e6)
    }

    /// Returns the version of the GPU's driver.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if ROCm SMI fails or does not support it.
    pub fn driver_version(&self) -> Result<String> {
        let mut text = [0 as c_char; 256];
        let table = table(&self.device)?;
        let driver = rsmi_sw_component_t::RSMI_SW_COMP_DRIVER;
        // SAFETY: the call writes at most as many characters as its arguments say.
        unsafe {
            call!(
                &self.device,
                table.rsmi_version_str_get(driver, text.as_mut_ptr(), text.len() as u32)
            )
        }?;
        Ok(string(&text))
    }

    /// Returns the current clock of the compute units in MHz.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if ROCm SMI fails or does not support it.
    pub fn clock(&self) -> Result<f64> {
        self.frequency(rsmi_clk_type_t::RSMI_CLK_TYPE_SYS)
    }

    /// Returns the current memory clock in MHz.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if ROCm SMI fails or does not support it.
    pub fn memory_clock(&self) -> Result<f64> {
        self.frequency(rsmi_clk_type_t::RSMI_CLK_TYPE_MEM)
    }

    fn frequency(&self, kind: rsmi_clk_type_t) -> Result<f64> {
        let table = table(&self.device)?;
        // SAFETY: numbers and a bool: all zeroes are valid.
        let mut all: rsmi_frequencies_t = unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: the call writes one structure.
        unsafe {
            call!(
                &self.device,
                table.rsmi_dev_gpu_clk_freq_get(self.index, kind, &mut all)
            )
        }?;
        let current = all.frequency.get(all.current as usize).copied().unwrap_or(0);
        Ok(current as f64 / 1e6)
    }

    /// Returns the share of the recent time in which a kernel ran, from 0 to 1.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if ROCm SMI fails or does not support it.
    pub fn utilisation(&self) -> Result<f64> {
        let percent: u32 = number!(self, rsmi_dev_busy_percent_get())?;
        Ok(f64::from(percent) / 100.0)
    }

    /// Returns the bytes of device memory in use, by all processes.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if ROCm SMI fails or does not support it.
    pub fn memory_used(&self) -> Result<u64> {
        number!(
            self,
            rsmi_dev_memory_usage_get(rsmi_memory_type_t::RSMI_MEM_TYPE_VRAM)
        )
    }

    /// Returns the bytes of device memory.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if ROCm SMI fails or does not support it.
    pub fn memory_total(&self) -> Result<u64> {
        number!(
            self,
            rsmi_dev_memory_total_get(rsmi_memory_type_t::RSMI_MEM_TYPE_VRAM)
        )
    }

    /// Returns the current PCIe link.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if ROCm SMI fails or does not support it.
    pub fn pcie_link(&self) -> Result<PcieLink> {
        let table = table(&self.device)?;
        // SAFETY: numbers and a bool: all zeroes are valid.
        let mut all: rsmi_pcie_bandwidth_t = unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: the call writes one structure.
        unsafe {
            call!(
                &self.device,
                table.rsmi_dev_pci_bandwidth_get(self.index, &mut all)
            )
        }?;
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
    /// [`Error::Device`] if ROCm SMI fails or does not support it.
    pub fn xgmi_hive(&self) -> Result<u64> {
        number!(self, rsmi_dev_xgmi_hive_id_get())
    }

    /// Returns the link between this GPU and another, and its number of hops.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if ROCm SMI fails or does not support it.
    pub fn link_to(&self, other: &Self) -> Result<(LinkType, u64)> {
        let table = table(&self.device)?;
        let (mut hops, mut kind) = (0, RSMI_IO_LINK_TYPE::RSMI_IOLINK_TYPE_UNDEFINED);
        // SAFETY: the call writes a number and a type.
        unsafe {
            call!(
                &self.device,
                table.rsmi_topo_get_link_type(self.index, other.index, &mut hops, &mut kind)
            )
        }?;
        let kind = match kind {
            RSMI_IO_LINK_TYPE::RSMI_IOLINK_TYPE_PCIEXPRESS => LinkType::Pcie,
            RSMI_IO_LINK_TYPE::RSMI_IOLINK_TYPE_XGMI => LinkType::Xgmi,
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
        rsmi_status_t::RSMI_STATUS_NOT_SUPPORTED,
        rsmi_status_t::RSMI_STATUS_NOT_YET_IMPLEMENTED,
    ];
    matches!(error, Error::Provider { .. }) || statuses.into_iter().any(|status| is(error, status))
}

impl Drop for Monitor {
    fn drop(&mut self) {
        if let Ok(table) = table(&self.device) {
            // SAFETY: no arguments. Undoes the `rsmi_init` of this monitor. Ignoring a failure is safe: ROCm SMI then stays initialised
            // until the process ends.
            let _ = unsafe { table.rsmi_shut_down() };
        }
    }
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Monitor").field(&self.device).finish()
    }
}
