//! The provider: opened once, asked for its devices first.

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use hipvit_sys::hip::hipError_t;
use hipvit_sys::{Hip, Provider, Table};
use serde::Serialize;

use super::device::{Device, Shared};
use super::status::{check, missing};
use crate::error::{Error, Result};

/// The provider's libraries. Cheap to clone; every clone is the same runtime.
#[derive(Clone, Debug)]
pub struct Runtime {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    provider: Provider,
    /// Devices that are in use, so that one GPU has one pool.
    devices: Mutex<Vec<(usize, Weak<Shared>)>>,
}

/// One of the provider's libraries, as [`Runtime::libraries`] lists them.
#[derive(Clone, Debug, Serialize)]
pub struct Library {
    /// What people call it.
    pub name: &'static str,
    /// The file that was opened.
    pub path: Option<String>,
    /// Why none was.
    pub error: Option<String>,
}

impl Runtime {
    /// The provider that the environment names (`HIPVIT_PROVIDER`), else AMD's. Opened by the first call; later calls
    /// give the same one, or the same error.
    ///
    /// # Errors
    ///
    /// [`Error::Provider`] if it cannot be opened; the text names the library and every file tried.
    pub fn open() -> Result<Self> {
        static OPENED: OnceLock<Result<Runtime, hipvit_sys::Error>> = OnceLock::new();
        OPENED
            .get_or_init(|| Provider::from_env().and_then(Self::with))
            .clone()
            .map_err(|error| missing(&error))
    }

    /// The provider of this name or path, as `HIPVIT_PROVIDER` would give it. Keep to one in a process.
    ///
    /// # Errors
    ///
    /// As for [`Runtime::open`].
    pub fn named(provider: &str) -> Result<Self> {
        Provider::named(provider)
            .and_then(Self::with)
            .map_err(|error| missing(&error))
    }

    fn with(provider: Provider) -> Result<Self, hipvit_sys::Error> {
        provider.hip()?;
        Ok(Self {
            inner: Arc::new(Inner {
                provider,
                devices: Mutex::default(),
            }),
        })
    }

    /// Whether both are clones of one.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    pub(super) fn provider(&self) -> &Provider {
        &self.inner.provider
    }

    pub(super) fn hip(&self) -> Result<&Hip> {
        self.inner.provider.hip().map_err(|error| missing(&error))
    }

    /// The file that the HIP runtime is in.
    ///
    /// # Errors
    ///
    /// None after a runtime was opened; the signature is the table's.
    pub fn path(&self) -> Result<&Path> {
        Ok(self.hip()?.path())
    }

    /// The HIP runtime's version, `major * 10_000_000 + minor * 100_000 + patch` in AMD's.
    ///
    /// # Errors
    ///
    /// The library lacks the function, or it fails.
    pub fn version(&self) -> Result<i32> {
        let hip = self.hip()?;
        let mut version = 0;
        // SAFETY: the call writes one int.
        check("HIP", "hipRuntimeGetVersion", unsafe {
            hip.hipRuntimeGetVersion(&mut version)
        })?;
        Ok(version)
    }

    /// How many GPUs there are; 0 is no error.
    ///
    /// # Errors
    ///
    /// The driver refuses to say.
    pub fn device_count(&self) -> Result<usize> {
        let hip = self.hip()?;
        let mut count = 0;
        // SAFETY: the call writes one int. It is the call to make first: it aborts nowhere.
        match unsafe { hip.hipGetDeviceCount(&mut count) } {
            Ok(hipError_t::hipErrorNoDevice) => Ok(0),
            returned => {
                check("HIP", "hipGetDeviceCount", returned)?;
                Ok(usize::try_from(count).unwrap_or(0))
            }
        }
    }

    /// A GPU, by its number from 0. While one is in use, the same is given again.
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`] if there is none of that number; what the driver says otherwise.
    pub fn device(&self, ordinal: usize) -> Result<Device> {
        let count = self.device_count()?;
        if ordinal >= count {
            return Err(Error::NoDevice {
                ordinal,
                reason: format!("{} finds {}", self.path()?.display(), found(count)),
            });
        }
        let mut devices = self.inner.devices.lock().unwrap_or_else(PoisonError::into_inner);
        devices.retain(|(_, device)| device.strong_count() > 0);
        let open = devices.iter().find(|(n, _)| *n == ordinal);
        if let Some(shared) = open.and_then(|(_, device)| device.upgrade()) {
            return Ok(Device::from(shared));
        }
        let device = Device::new(self.clone(), ordinal)?;
        devices.push((ordinal, device.downgrade()));
        Ok(device)
    }

    /// Every GPU.
    ///
    /// # Errors
    ///
    /// As for [`Runtime::device`].
    pub fn devices(&self) -> Result<Vec<Device>> {
        (0..self.device_count()?).map(|n| self.device(n)).collect()
    }

    /// Opens every library, and says which file each is in, or why there is none.
    #[must_use]
    pub fn libraries(&self) -> Vec<Library> {
        fn library<T: Table>(table: Result<&T, hipvit_sys::Error>) -> Library {
            Library {
                name: T::LIBRARY,
                path: table.as_ref().ok().map(|t| t.path().display().to_string()),
                error: table.err().map(|e| e.to_string()),
            }
        }
        let provider = self.provider();
        vec![
            library(provider.hip()),
            library(provider.hiprtc()),
            library(provider.rocblas()),
            library(provider.hipblaslt()),
            library(provider.miopen()),
            library(provider.rccl()),
            library(provider.rocm_smi()),
        ]
    }
}

fn found(count: usize) -> String {
    match count {
        0 => "none; is the driver loaded, and may this user open /dev/kfd and /dev/dri?".into(),
        1 => "one, number 0".into(),
        n => format!("{n}, numbered from 0"),
    }
}
