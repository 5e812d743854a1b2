//! Assembly of class, register and patch tokens.

use super::*;

pub(super) fn prepend_shape(inputs: &[&[usize]]) -> Result<Shape, String> {
    let Some((x, prefixes)) = inputs.split_last() else {
        return Err("takes at least 1 operand".into());
    };
    let [b, n, d] = **x else {
        return Err(format!("x has shape {x:?}, expected [B, N, D]"));
    };
    let mut tokens = n;
    for prefix in prefixes {
        match **prefix {
            [1, p, channels] if channels == d => tokens += p,
            _ => return Err(format!("a prefix has shape {prefix:?}, expected [1, P, {d}]")),
        }
    }
    Ok(vec![b, tokens, d])
}

pub(super) fn tokens_shape(spec: &Tokens, inputs: &[&[usize]]) -> Result<Shape, String> {
    let mut rest = inputs.iter();
    let x = optional(&mut rest, true, "x")?.unwrap_or_default();
    let prefix = optional(&mut rest, spec.prefix, "prefix")?;
    let position = optional(&mut rest, spec.position, "position")?;
    finished(&rest)?;
    let [b, n, d] = *x else {
        return Err(format!("x has shape {x:?}, expected [B, N, D]"));
    };
    if let Some(position) = position {
        expect("position", position, &[1, n, d])?;
    }
    match prefix {
        None => Ok(vec![b, n, d]),
        Some(&[1, p, channels]) if channels == d => Ok(vec![b, p + n, d]),
        Some(prefix) => Err(format!("`prefix` has shape {prefix:?}, expected [1, P, {d}]")),
    }
}
