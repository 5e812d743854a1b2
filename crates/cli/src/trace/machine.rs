//! The pixel on an emulated GPU: the instructions and lanes that carry it, and the rows that it reaches in each step's
//! result.
//!
//! The emulated GPU marks the pixel's bytes and follows them (hip-emu's README, "Following bytes"). It reads its
//! settings when it is opened, so the model runs once more in a child process.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail};
use hipvit::{GraphMode, RunInput, RunOptions, Session};
use hipvit_diagnostics::bench::DeviceInfo;
use hipvit_diagnostics::table::{Column, Table, paragraph};
use hipvit_explain::Trace;
use hipvit_files::temporary::Listed;
use serde::{Deserialize, Serialize};

use super::places::Memory;
use crate::model_args::ModelArgs;
use crate::outcome::{Outcome, refused};
use crate::{output, record};

/// Settings of the emulated GPU: the output file, and the bytes to mark.
const RECORDS: &str = "HIP_EMU_TAINT";
const MARK: &str = "HIP_EMU_TAINT_MARK";

/// The kernels and library calls of a run, in order.
#[derive(Serialize, Deserialize)]
pub(crate) struct Machine {
    /// Name of the emulated GPU and its architecture.
    pub(crate) gpu: String,
    pub(crate) calls: Vec<Call>,
}

/// A kernel launch or library call.
#[derive(Serialize, Deserialize)]
pub(crate) struct Call {
    /// Step of the plan that the call computes.
    pub(crate) step: String,
    /// Name of the kernel or library function.
    pub(crate) name: String,
    /// Rows of the step's result that depend on the pixel. A row spans the last dimension.
    pub(crate) rows: Vec<usize>,
    pub(crate) of_rows: usize,
    /// Instructions that carry the pixel. Unknown for library calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) taint: Option<Taint>,
}

/// Taint of a kernel's data, with the fields of gcnrun's `Taint`.
#[derive(Serialize, Deserialize)]
pub(crate) struct Taint {
    pub(crate) instructions: u64,
    pub(crate) blocks: u64,
    pub(crate) waves: u64,
    pub(crate) lanes: u64,
    first: Option<Carrier>,
    last: Option<Carrier>,
    /// Carriers by kind of instruction, with gcnrun's names.
    pub(crate) steps: BTreeMap<String, Carriers>,
    #[serde(default, skip_serializing)]
    stored: Vec<[u64; 2]>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Carriers {
    pub(crate) instructions: u64,
    pub(crate) lanes: u64,
    pub(crate) first: Option<Carrier>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Carrier {
    pc: u64,
    pub(crate) instruction: String,
    pub(crate) block: [u32; 3],
    pub(crate) wave: u32,
    lanes: u32,
    pub(crate) lane: Option<u32>,
    pub(crate) address: Option<u64>,
}

/// A line of the emulated GPU's output.
#[derive(Deserialize)]
struct Line {
    kernel: Option<String>,
    taint: Option<Taint>,
    library: Option<String>,
    #[serde(default)]
    stored: Vec<[u64; 2]>,
}

impl Machine {
    /// Follows the pixel of a trace. Returns `None` if the session does not run on an emulated GPU or the pixel does
    /// not reach the model's input.
    pub(crate) fn follow(session: &Session, trace: &Trace) -> Result<Option<Self>> {
        let (Some(_), Some(input)) = (session.executor().hip(), trace.input) else {
            return Ok(None);
        };
        let gpu = Session::builder().device(session.device()).open_device()?;
        if gpu.is_none_or(|gpu| DeviceInfo::gpu(&gpu).kind != "emulated") {
            return Ok(None);
        }
        let folder = tempfile::tempdir().context("a folder for the emulated GPU's records")?;
        let _listed = Listed::new(folder.path());
        let offset = (input.y * trace.resized.width + input.x) * 3;
        // Run this command again, with an option after its name that selects `run`.
        let mut arguments: Vec<_> = std::env::args_os().skip(1).collect();
        let name = arguments.iter().position(|argument| argument == "trace");
        arguments.insert(name.map_or(0, |at| at + 1), "--follow".into());
        let done = Command::new(std::env::current_exe().context("the path of this program")?)
            .args(arguments)
            .env(RECORDS, folder.path().join("records.jsonl"))
            .env(MARK, format!("patch_extract:0:{offset}:3"))
            // The emulated GPU follows or counts a launch, but does not do both.
            .env_remove("HIP_EMU_PROFILE")
            .env_remove("HIP_EMU_PROFILE_SAMPLE")
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .context("cannot run the model in a child process")?;
        if !done.status.success() {
            bail!(
                "the process that follows the pixel on the emulated GPU failed: {}",
                done.status
            );
        }
        Ok(Some(serde_json::from_slice(&done.stdout)?))
    }

    /// Runs the model in the child process of [`follow`](Self::follow), and prints the output of the emulated GPU.
    pub(crate) fn run(model: &ModelArgs) -> Result<Outcome> {
        let records = std::env::var_os(RECORDS)
            .map(PathBuf::from)
            .ok_or_else(|| anyhow!("--follow is for the processes that trace starts itself"))?;
        // Run one image with arbitrary values, step by step.
        let session = model.load_with(model.builder().hip_graphs(GraphMode::Off))?;
        let memory = Memory::of(&session)?;
        let (height, width) = session.preprocess().output_size();
        session.run_with(
            RunInput::Pixels(&vec![0x80; height * width * 3]),
            RunOptions::new(),
        )?;
        let text = fs::read_to_string(&records).map_err(refused(&records))?;
        let lines: Vec<Line> = text
            .lines()
            .map(serde_json::from_str)
            .collect::<Result<_, _>>()
            .with_context(|| records.display().to_string())?;
        let gpu = Session::builder().device(session.device()).open_device()?;
        let info = gpu.as_ref().map_or_else(DeviceInfo::cpu, DeviceInfo::gpu);
        let machine = Self {
            gpu: format!("{} ({}, emulated)", info.name, info.arch),
            calls: calls(&memory, lines)?,
        };
        let mut out = output::stdout();
        record::write(&mut out, &machine)?;
        out.flush()?;
        Ok(Outcome::Complete)
    }

    pub(crate) fn text(&self, width: Option<usize>) -> String {
        let mut table = Table::new([
            Column::left("step").wraps(12),
            Column::left("kernel or call").wraps(16),
            Column::right("rows"),
            Column::right("instr.").rank(2),
            Column::right("lanes").rank(2),
            Column::left("first").wraps(24).rank(1),
            Column::left("last").wraps(24).rank(3),
        ]);
        for call in &self.calls {
            table.row(call.cells());
        }
        let heading = format!(
            "On the {}: instructions and lanes that carry the pixel, the first and last of these, and rows that it reaches",
            self.gpu
        );
        paragraph(&heading, "  ", width) + &table.text(width)
    }
}

impl Call {
    /// Returns the cells of [`Machine::text`].
    pub(crate) fn cells(&self) -> Vec<String> {
        let instruction = |carrier: &Option<Carrier>| {
            carrier
                .as_ref()
                .map_or_else(String::new, |carrier| carrier.instruction.clone())
        };
        let mut cells = vec![self.step.clone(), self.name.clone(), self.reach()];
        if let Some(taint) = &self.taint {
            cells.extend([taint.instructions.to_string(), taint.lanes.to_string()]);
            cells.extend([instruction(&taint.first), instruction(&taint.last)]);
        }
        cells
    }

    /// Returns the rows that the pixel reaches, in short form.
    pub(crate) fn reach(&self) -> String {
        match self.rows[..] {
            [] => "–".to_owned(),
            [row] => format!("row {row}"),
            _ if self.rows.len() == self.of_rows => format!("all {}", self.of_rows),
            _ => format!("{} of {}", self.rows.len(), self.of_rows),
        }
    }
}

/// Returns the calls, each with the step that it computes. A step has a line for each of its kernels.
fn calls(memory: &Memory, lines: Vec<Line>) -> Result<Vec<Call>> {
    let steps = memory.steps();
    let expected: usize = steps.iter().map(|step| step.calls).sum();
    if lines.len() != expected {
        bail!(
            "the emulated GPU followed {} calls, but the model's plan has {expected}",
            lines.len()
        );
    }
    let of_calls = steps
        .iter()
        .flat_map(|step| std::iter::repeat_n(step, step.calls));
    let call = |(step, line): (&super::places::Written, Line)| {
        let stored = match &line.taint {
            Some(taint) => &taint.stored,
            None => &line.stored,
        };
        let mut rows = BTreeSet::new();
        for &[address, length] in stored {
            let row = |address: u64| {
                address
                    .checked_sub(step.begin.as_u64())
                    .map(|offset| offset as usize / step.row)
            };
            if let (Some(first), Some(last)) = (row(address), row(address + length.max(1) - 1)) {
                rows.extend((first..=last).filter(|&row| row < step.rows));
            }
        }
        Call {
            step: step.name.clone(),
            name: line.kernel.or(line.library).unwrap_or_default(),
            rows: rows.into_iter().collect(),
            of_rows: step.rows,
            taint: line.taint,
        }
    };
    Ok(of_calls.zip(lines).map(call).collect())
}
