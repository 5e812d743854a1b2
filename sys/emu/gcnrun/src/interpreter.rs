//! Executes a wave, instruction by instruction.

use crate::code::{Code, Context, Exit, Stop};
use crate::fault::FaultKind;
use crate::space::Space;
use crate::wave::Wave;

/// A fault and where it happened.
#[derive(Clone, Debug)]
pub(crate) struct Stopped {
    /// The fault.
    pub kind: FaultKind,
    /// Address of the instruction.
    pub pc: u64,
    /// The lane, if one lane caused it.
    pub lane: Option<u32>,
}

/// Executes a wave until it ends or waits at a barrier; its `pc` is then where it goes on.
///
/// # Errors
/// What it did wrong, and at which instruction.
pub(crate) fn run(wave: &mut Wave, code: &Code, space: &mut Space<'_>) -> Result<Stop, Stopped> {
    match space.observer {
        None => execute::<false>(wave, code, space),
        Some(_) => execute::<true>(wave, code, space),
    }
}

/// Watching costs nothing where nothing is watched.
fn execute<const WATCHED: bool>(
    wave: &mut Wave,
    code: &Code,
    space: &mut Space<'_>,
) -> Result<Stop, Stopped> {
    let mut index = code.index_of(wave.pc).map_err(|kind| Stopped {
        kind,
        pc: wave.pc,
        lane: None,
    })?;
    let mut context = Context {
        wave,
        space,
        code,
        next: 0,
        has_fma: host_has_fma(),
        assume_known: false,
    };
    let mut executed = 0_u64;
    let budget = context.wave.budget;
    let stop = loop {
        let Some(instruction) = code.instructions.get(index as usize) else {
            let target = code.address_of(index);
            break Err(Box::from(FaultKind::WildJump { target }));
        };
        executed += 1;
        if executed > budget {
            break Err(Box::from(FaultKind::Timeout {
                instructions: context.wave.executed + budget,
            }));
        }
        if WATCHED && let Some(observer) = &mut context.space.observer {
            observer.before(index, context.wave);
        }
        context.next = index + 1;
        if let Err(exit) = (instruction.run)(&mut context, instruction) {
            break Err(exit);
        }
        if WATCHED && let Some(observer) = &mut context.space.observer {
            observer.after(index, context.wave);
        }
        index = context.next;
    };
    let next = context.next;
    wave.executed += executed;
    wave.budget -= executed.min(budget);
    match stop.map_err(|exit| *exit) {
        Ok(()) => Ok(Stop::End),
        Err(Exit::Stop(stop)) => {
            wave.pc = code.address_of(next);
            Ok(stop)
        }
        Err(Exit::Fault { kind, lane }) => {
            wave.pc = code.address_of(index);
            Err(Stopped {
                kind,
                pc: wave.pc,
                lane,
            })
        }
    }
}

/// True if the host has AVX2 and FMA.
fn host_has_fma() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}
