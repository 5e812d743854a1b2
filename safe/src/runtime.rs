//! The provider's libraries, and its devices.

use std::any::Any;
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};

use hipvit_sys::hip::hipError_t;
use hipvit_sys::{Hip, Provider, Table};
use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;

use crate::error::Result;
use crate::status::{check, missing};

/// The provider's libraries. Cheap to clone: all clones are the same runtime.
#[derive(Clone, Debug)]
pub struct Runtime {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    provider: Provider,
    /// Devices in use, so that each GPU has one pool.
    devices: Mutex<OpenDevices>,
    /// True once AMD SMI is initialised.
    smi_initialised: Mutex<bool>,
}

/// Devices in use, by ordinal. Their type is in `device`, a higher module.
pub(crate) type OpenDevices = Vec<(usize, Weak<dyn Any + Send + Sync>)>;

/// One of the provider's libraries, as [`Runtime::libraries`] lists them.
#[derive(Clone, Debug, Serialize)]
pub struct Library {
    /// Common name of the library.
    pub name: &'static str,
    /// Path of the opened file.
    pub path: Option<String>,
    /// Reason why no library was opened.
    pub error: Option<String>,
}

impl Runtime {
    /// Opens the provider that the environment names (`HIPVIT_PROVIDER`), otherwise AMD's. Later calls return the same runtime, or the same
    /// error.
    ///
    /// # Errors
    ///
    /// [`Error::Provider`](crate::Error::Provider) if it cannot be opened. The message names the library and all files that were tried.
    pub fn open() -> Result<Self> {
        static OPENED: OnceLock<Result<Runtime, hipvit_sys::Error>> = OnceLock::new();
        OPENED
            .get_or_init(|| Provider::from_env().and_then(Self::with))
            .clone()
            .map_err(|error| missing(&error))
    }

    /// Opens the provider with this name or path, as in `HIPVIT_PROVIDER`. Use only one provider in a process.
    ///
    /// # Errors
    ///
    /// [`Error::Provider`](crate::Error::Provider) if its HIP runtime cannot be opened.
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
                smi_initialised: Mutex::default(),
            }),
        })
    }

    /// Returns true if both are clones of one runtime.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    pub(crate) fn provider(&self) -> &Provider {
        &self.inner.provider
    }

    pub(crate) fn hip(&self) -> Result<&Hip> {
        self.inner.provider.hip().map_err(|error| missing(&error))
    }

    pub(crate) fn open_devices(&self) -> MutexGuard<'_, OpenDevices> {
        self.inner.devices.lock()
    }

    pub(crate) fn smi_initialised(&self) -> MutexGuard<'_, bool> {
        self.inner.smi_initialised.lock()
    }

    /// Returns the path of the HIP runtime.
    ///
    /// # Errors
    ///
    /// No error occurs once a runtime is open.
    pub fn path(&self) -> Result<&Path> {
        Ok(self.hip()?.path())
    }

    /// Returns the version of the HIP runtime. AMD's format is `major * 10_000_000 + minor * 100_000 + patch`.
    ///
    /// # Errors
    ///
    /// The library lacks the function, or the call fails.
    pub fn version(&self) -> Result<i32> {
        let hip = self.hip()?;
        let mut version = 0;
        // SAFETY: the call writes one int.
        check("HIP", "hipRuntimeGetVersion", unsafe {
            hip.hipRuntimeGetVersion(&mut version)
        })?;
        Ok(version)
    }

    /// Returns the number of GPUs. 0 is not an error.
    ///
    /// # Errors
    ///
    /// The driver fails.
    pub fn device_count(&self) -> Result<usize> {
        let hip = self.hip()?;
        let mut count = 0;
        // SAFETY: the call writes one int. It can be called first, since it aborts nowhere.
        match unsafe { hip.hipGetDeviceCount(&mut count) } {
            Ok(hipError_t::hipErrorNoDevice) => Ok(0),
            returned => {
                check("HIP", "hipGetDeviceCount", returned)?;
                Ok(usize::try_from(count).unwrap_or(0))
            }
        }
    }

    /// Opens all libraries. Returns the path of each, or the reason why it was not opened.
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
            library(provider.hipsparselt()),
            library(provider.miopen()),
            library(provider.rccl()),
            library(provider.amd_smi()),
        ]
    }
}
