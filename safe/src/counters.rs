//! Hardware counters of each kernel launch, by rocprofiler-sdk.
//!
//! The library registers a tool before the HIP runtime is initialised. It then reports every loaded kernel to the tool, and asks it before
//! each launch what to count. The counts arrive later, on a thread of the library. It runs one kernel at a time, so that launches do not
//! disturb each other's counts.

mod callbacks;
mod tool;

use std::collections::BTreeMap;
use std::fmt;
use std::ptr;
use std::time::{Duration, Instant};

use hipvit_sys::Table;
use hipvit_sys::rocprofiler::{
    rocprofiler_agent_id_t, rocprofiler_context_id_t, rocprofiler_counter_config_id_t,
    rocprofiler_counter_id_t, rocprofiler_counter_info_v0_t, rocprofiler_counter_info_version_id_t,
    rocprofiler_status_t,
};
use parking_lot::{Condvar, Mutex};

use self::callbacks::{collect, configure};
use self::tool::{Pass, State, TOOL, Tool, check, failed, text};
use crate::error::{Error, Result};
use crate::runtime::Runtime;

/// Maximum time for counts to arrive after the work has ended.
const COUNTS_TIMEOUT: Duration = Duration::from_secs(5);

/// Statuses for a counter that the agent lacks, other than exceeding the hardware's limit.
const UNSUPPORTED: [rocprofiler_status_t; 5] = [
    rocprofiler_status_t::ROCPROFILER_STATUS_ERROR_COUNTER_NOT_FOUND,
    rocprofiler_status_t::ROCPROFILER_STATUS_ERROR_METRIC_NOT_VALID_FOR_AGENT,
    rocprofiler_status_t::ROCPROFILER_STATUS_ERROR_PROFILE_COUNTER_NOT_FOUND,
    rocprofiler_status_t::ROCPROFILER_STATUS_ERROR_AST_GENERATION_FAILED,
    rocprofiler_status_t::ROCPROFILER_STATUS_ERROR_AST_NOT_FOUND,
];

/// Counters that are counted in one pass.
struct Group {
    config: rocprofiler_counter_config_id_t,
    counters: Vec<Counter>,
}

#[derive(Clone)]
struct Counter {
    id: rocprofiler_counter_id_t,
    name: String,
}

/// Counts of the GPU's hardware counters for each kernel that some work launches, including those of libraries.
///
/// Supports AMD GPUs with rocprofiler-sdk 1.x, which is part of ROCm 7.
pub struct HardwareCounters {
    tool: &'static Tool,
    context: rocprofiler_context_id_t,
}

/// Result of counting.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Counted {
    /// Number of times that the work ran, since a GPU counts only a few counters at a time.
    pub passes: usize,
    /// Names of the requested counters that the GPU has.
    pub counters: Vec<String>,
    /// Kernels in the order of their first launches.
    pub kernels: Vec<KernelCounts>,
}

/// Counts of all launches of a kernel.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KernelCounts {
    /// Name of the kernel in its code object.
    pub kernel: String,
    /// Number of times that the work launches the kernel.
    pub launches: u64,
    /// Values by counter name, summed over launches and over the counter's instances.
    pub values: BTreeMap<String, f64>,
}

impl HardwareCounters {
    /// Enables counting in this process, on the provider of [`Runtime::open`]. Call it before creating the first [`Device`](crate::Device),
    /// because rocprofiler-sdk must come before the HIP runtime. `None` if the provider has no rocprofiler-sdk, as for NVIDIA GPUs and
    /// emulated ones.
    ///
    /// # Errors
    ///
    /// [`Error::Provider`] if there is no provider, no supported version of rocprofiler-sdk, an open device, or another
    /// profiler's tool in the process.
    pub fn open() -> Result<Option<Self>> {
        let runtime = Runtime::open()?;
        let sdk = match runtime.provider().rocprofiler() {
            Ok(sdk) => sdk,
            Err(hipvit_sys::Error::Foreign { .. }) => return Ok(None),
            Err(error) => {
                return Err(Error::Provider {
                    reason: format!("{}; it comes with the package rocprofiler-sdk", error.brief()),
                    tried: error.tried(),
                });
            }
        };
        if !runtime.open_devices().is_empty() {
            return Err(failed("must be set up before the first device is opened"));
        }
        let (mut major, mut minor, mut patch) = (0, 0, 0);
        // SAFETY: the call writes three numbers.
        check("rocprofiler_get_version", unsafe {
            sdk.rocprofiler_get_version(&mut major, &mut minor, &mut patch)
        })?;
        if major != 1 {
            let path = sdk.path().display();
            return Err(failed(format!(
                "version {major}.{minor}.{patch} in {path}: counters need 1.x, which comes with ROCm 7"
            )));
        }
        let tool = Tool {
            sdk: sdk.clone(),
            state: Mutex::default(),
            recorded: Condvar::new(),
        };
        if TOOL.set(tool).is_err() {
            return Err(failed("is set up in this process already"));
        }
        // SAFETY: the function has the expected prototype and is static.
        check("rocprofiler_force_configure", unsafe {
            sdk.rocprofiler_force_configure(Some(configure))
        })?;
        let Some(tool) = TOOL.get() else {
            return Err(failed("is not set up"));
        };
        let context = tool.state.lock().context.take();
        let context = context.ok_or_else(|| failed("did not set up this process's part"))??;
        Ok(Some(Self { tool, context }))
    }

    /// Runs `work` once to record its launches, and then once for each set of counters that the GPU counts at a time. Sums the values by
    /// kernel. `work` must launch the same kernels each time, on one GPU, and wait for them. Skips counters in `wanted` that the GPU lacks.
    ///
    /// # Errors
    ///
    /// The error of `work`. [`Error::Provider`] if `work` launched nothing, other kernels than before, or kernels on several
    /// GPUs. [`Error::Provider`] if the GPU has none of the counters, rocprofiler-sdk fails or counts are missing.
    pub fn measure<E: From<Error>>(
        &mut self,
        wanted: &[&str],
        mut work: impl FnMut() -> Result<(), E>,
    ) -> Result<Counted, E> {
        let plan = self.pass(None, &mut work)?;
        let agent = plan.agent()?;
        let groups = self.groups(agent, self.supported(agent, wanted)?)?;
        if groups.is_empty() {
            return Err(failed(format!("this GPU has none of the counters {}", wanted.join(", "))).into());
        }
        let mut kernels = self.kernels(&plan);
        let launches = |kernels: &[KernelCounts]| -> BTreeMap<String, u64> {
            kernels.iter().map(|k| (k.kernel.clone(), k.launches)).collect()
        };
        let mut counters = Vec::new();
        for group in &groups {
            let pass = self.pass(Some((agent, group.config)), &mut work)?;
            if launches(&self.kernels(&pass)) != launches(&kernels) {
                return Err(failed("two runs of the same work launched different kernels").into());
            }
            let state = self.tool.state.lock();
            for launch in &pass.launches {
                let kernel = state.name(launch.kernel);
                let values = pass.records.get(&launch.number);
                for counter in &group.counters {
                    let value = values.and_then(|values| values.get(&counter.id.handle));
                    let value = value.ok_or_else(|| {
                        failed(format!("{kernel}: a launch has no count of {}", counter.name))
                    })?;
                    if let Some(sums) = kernels.iter_mut().find(|known| known.kernel == kernel) {
                        *sums.values.entry(counter.name.clone()).or_default() += value;
                    }
                }
            }
            drop(state);
            counters.extend(group.counters.iter().map(|counter| counter.name.clone()));
        }
        Ok(Counted {
            passes: groups.len(),
            counters,
            kernels,
        })
    }

    /// Runs the work once, and waits for its counts if any are expected.
    fn pass<E: From<Error>>(
        &self,
        config: Option<(rocprofiler_agent_id_t, rocprofiler_counter_config_id_t)>,
        work: &mut impl FnMut() -> Result<(), E>,
    ) -> Result<Pass, E> {
        let mut state = self.tool.state.lock();
        state.passes += 1;
        state.pass = Some(Pass {
            number: state.passes,
            config,
            ..Pass::default()
        });
        drop(state);
        let done = work();
        let deadline = Instant::now() + COUNTS_TIMEOUT;
        let mut state = self.tool.state.lock();
        let missing = |state: &State| {
            let pass = state.pass.as_ref().filter(|pass| pass.config.is_some());
            pass.map_or(0, |pass| pass.launches.len().saturating_sub(pass.records.len()))
        };
        while done.is_ok() && missing(&state) > 0 {
            if self.tool.recorded.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        let missing = missing(&state);
        let pass = state.pass.take().unwrap_or_default();
        drop(state);
        done?;
        if missing > 0 {
            let launches = pass.launches.len();
            let waited = COUNTS_TIMEOUT.as_secs();
            return Err(failed(format!(
                "the counts of {missing} of {launches} launches did not come within {waited} s"
            ))
            .into());
        }
        Ok(pass)
    }

    /// Returns the counters in `wanted` that the agent has.
    fn supported(&self, agent: rocprofiler_agent_id_t, wanted: &[&str]) -> Result<Vec<Counter>> {
        let sdk = &self.tool.sdk;
        let mut ids: Vec<rocprofiler_counter_id_t> = Vec::new();
        // SAFETY: the callback runs within the call and gets the vector.
        check("rocprofiler_iterate_agent_supported_counters", unsafe {
            sdk.rocprofiler_iterate_agent_supported_counters(
                agent,
                Some(collect),
                ptr::from_mut(&mut ids).cast(),
            )
        })?;
        let mut counters = Vec::new();
        for id in ids {
            let mut info = rocprofiler_counter_info_v0_t {
                id,
                name: ptr::null(),
                description: ptr::null(),
                block: ptr::null(),
                expression: ptr::null(),
                flags: 0,
            };
            // SAFETY: the call writes a structure of this version.
            check("rocprofiler_query_counter_info", unsafe {
                sdk.rocprofiler_query_counter_info(
                    id,
                    rocprofiler_counter_info_version_id_t::ROCPROFILER_COUNTER_INFO_VERSION_0,
                    ptr::from_mut(&mut info).cast(),
                )
            })?;
            // SAFETY: null, or a static C string of the library.
            let name = unsafe { text(info.name) }.unwrap_or_default();
            counters.push(Counter { id, name });
        }
        let of = |name: &&str| counters.iter().find(|counter| counter.name == *name).cloned();
        Ok(wanted.iter().filter_map(of).collect())
    }

    /// Divides the counters into groups, by the first group with space for each counter.
    fn groups(&self, agent: rocprofiler_agent_id_t, counters: Vec<Counter>) -> Result<Vec<Group>> {
        let mut groups: Vec<Group> = Vec::new();
        'counters: for counter in counters {
            for group in &mut groups {
                let mut more = group.counters.clone();
                more.push(counter.clone());
                if let Some(config) = self.config(agent, &more)? {
                    self.destroy(group.config);
                    *group = Group {
                        config,
                        counters: more,
                    };
                    continue 'counters;
                }
            }
            let counters = vec![counter];
            if let Some(config) = self.config(agent, &counters)? {
                groups.push(Group { config, counters });
            }
        }
        Ok(groups)
    }

    /// Creates a configuration that counts these counters. `None` if the agent cannot count them at the same time.
    fn config(
        &self,
        agent: rocprofiler_agent_id_t,
        counters: &[Counter],
    ) -> Result<Option<rocprofiler_counter_config_id_t>> {
        let mut ids: Vec<_> = counters.iter().map(|counter| counter.id).collect();
        let mut config = rocprofiler_counter_config_id_t { handle: 0 };
        // SAFETY: the call reads the given number of counters and writes one number.
        let returned = unsafe {
            self.tool
                .sdk
                .rocprofiler_create_counter_config(agent, ids.as_mut_ptr(), ids.len(), &mut config)
        };
        match returned {
            Ok(rocprofiler_status_t::ROCPROFILER_STATUS_ERROR_EXCEEDS_HW_LIMIT) => Ok(None),
            Ok(status) if counters.len() == 1 && UNSUPPORTED.contains(&status) => Ok(None),
            returned => check("rocprofiler_create_counter_config", returned).map(|()| Some(config)),
        }
    }

    /// Destroys a configuration that no launch uses.
    fn destroy(&self, config: rocprofiler_counter_config_id_t) {
        // SAFETY: passes a number. If the call fails, the configuration stays until the process ends.
        let _ = unsafe { self.tool.sdk.rocprofiler_destroy_counter_config(config) };
    }

    /// Returns the kernels of a pass without counts, in the order of their first launches.
    fn kernels(&self, pass: &Pass) -> Vec<KernelCounts> {
        let state = self.tool.state.lock();
        let mut kernels: Vec<KernelCounts> = Vec::new();
        for launch in &pass.launches {
            let kernel = state.name(launch.kernel);
            match kernels.iter_mut().find(|known| known.kernel == kernel) {
                Some(known) => known.launches += 1,
                None => kernels.push(KernelCounts {
                    kernel,
                    launches: 1,
                    values: BTreeMap::new(),
                }),
            }
        }
        kernels
    }
}

impl Drop for HardwareCounters {
    fn drop(&mut self) {
        // SAFETY: passes a number. After a failure, launches are still reported, to a tool without a pass.
        let _ = unsafe { self.tool.sdk.rocprofiler_stop_context(self.context) };
    }
}

impl fmt::Debug for HardwareCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HardwareCounters")
            .field("path", &self.tool.sdk.path())
            .finish()
    }
}
