//! Reading the pickles of PyTorch files without running anything in them.
//!
//! A pickle is a program for a small stack machine, and Python's own reader lets it call any function. This one
//! knows the few opcodes that PyTorch writes and calls nothing: the three functions that rebuild a tensor and the
//! ordered dictionary are understood as data, and any other object is remembered by its name alone.

use std::collections::HashMap;

/// Bytes of copies that a pickle may ask for, for each of its own. PyTorch's pickles copy every tuple once and a class's name now and
/// then, which takes less than half of it.
const COPIES: usize = 16;

/// Index of a value in [`Pickle::values`].
pub(super) type Id = usize;

/// A value of a pickle. Containers hold indices, so that sharing, cycles and any depth of nesting are harmless.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    Tuple(Vec<Id>),
    List(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    /// A class or function by its full name.
    Global(String),
    /// A storage, the tuple that PyTorch names it by.
    Storage(Vec<Id>),
    /// Arguments of a tensor's rebuilding: storage, offset, sizes, strides, …
    Tensor(Vec<Id>),
    /// An object of the named class, whose contents were passed over.
    Object(String),
}

impl Value {
    /// Bytes that a copy takes besides the value itself.
    fn extent(&self) -> usize {
        match self {
            Self::None | Self::Bool(_) | Self::Int(_) | Self::Float(_) => 0,
            Self::Text(text) | Self::Global(text) | Self::Object(text) => text.len(),
            Self::Tuple(ids) | Self::List(ids) | Self::Storage(ids) | Self::Tensor(ids) => {
                size_of_val(ids.as_slice())
            }
            Self::Dict(entries) => size_of_val(entries.as_slice()),
        }
    }
}

/// A pickle's values.
#[derive(Debug)]
pub(super) struct Pickle {
    values: Vec<Value>,
    root: Id,
    /// Bytes that the pickle took.
    pub(super) length: usize,
}

impl Pickle {
    /// Reads the pickle at the start of `bytes`.
    ///
    /// # Errors
    /// What is wrong with it, in one line.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        let mut machine = Machine {
            bytes,
            at: 0,
            values: vec![],
            stack: vec![],
            marks: vec![],
            memo: HashMap::new(),
            copied: 0,
        };
        let root = machine.run()?;
        Ok(Self { values: machine.values, root, length: machine.at })
    }

    /// What the pickle is of.
    pub(super) fn root(&self) -> &Value {
        &self.values[self.root]
    }

    /// All values, in no particular order.
    pub(super) fn values(&self) -> impl Iterator<Item = &Value> {
        self.values.iter()
    }

    /// A value by its index.
    pub(super) fn value(&self, id: Id) -> &Value {
        &self.values[id]
    }
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    values: Vec<Value>,
    stack: Vec<Id>,
    /// Heights of the stack at which marks were set.
    marks: Vec<usize>,
    memo: HashMap<u32, Id>,
    /// Bytes of copies so far.
    copied: usize,
}

impl<'a> Machine<'a> {
    fn run(&mut self) -> Result<Id, String> {
        loop {
            let at = self.at;
            let [opcode] = self.array()?;
            match opcode {
                // Protocol and frame: nothing to do but to step over their arguments.
                0x80 => {
                    let [protocol] = self.array()?;
                    if protocol > 5 {
                        return Err(format!("it is a pickle of protocol {protocol}; known are 0 to 5"));
                    }
                }
                0x95 => {
                    self.take(8)?;
                }
                b'.' => return self.pop(),
                b'(' => self.marks.push(self.stack.len()),
                b'0' => {
                    self.pop()?;
                }
                b'1' => {
                    self.pop_marked()?;
                }
                // What is added to a container.
                b'a' | b'e' => {
                    let items = if opcode == b'a' { self.pop_many(1) } else { self.pop_marked() }?;
                    let target = self.top()?;
                    if let Value::List(list) = &mut self.values[target] {
                        list.extend(items);
                    }
                }
                b's' | b'u' => {
                    let items = if opcode == b's' { self.pop_many(2) } else { self.pop_marked() }?;
                    let new = pairs(&items)?;
                    let target = self.top()?;
                    if let Value::Dict(dict) = &mut self.values[target] {
                        dict.extend(new);
                    }
                }
                // Memo.
                b'q' | b'r' | 0x94 => {
                    let new = self.memo.len() as u32;
                    let key = if opcode == 0x94 { new } else { self.unsigned(opcode == b'r')? };
                    let id = self.top()?;
                    self.memo.insert(key, id);
                }
                b'h' | b'j' => {
                    let key = self.unsigned(opcode == b'j')?;
                    let id = self.memo.get(&key);
                    let id = id.ok_or_else(|| format!("the pickle remembers nothing under {key}"))?;
                    self.stack.push(*id);
                }
                // Objects, as data.
                0x93 => {
                    let items = self.pop_many(2)?;
                    let (Value::Text(module), Value::Text(name)) =
                        (&self.values[items[0]], &self.values[items[1]])
                    else {
                        return Err("a class is named by something that is not text".into());
                    };
                    let name = format!("{module}.{name}");
                    self.push_copy(Value::Global(name))?;
                }
                b'R' | 0x81 => {
                    let items = self.pop_many(2)?;
                    self.call(items[0], items[1])?;
                }
                // The state of an object (a state dict's version numbers, say): the object stays as it is.
                b'b' => {
                    self.pop()?;
                    self.top()?;
                }
                b'Q' => {
                    let id = self.pop()?;
                    self.persistent(id)?;
                }
                other => {
                    let value = self.value(other)?.ok_or_else(|| {
                        format!("byte {at} holds the pickle opcode {other:#04x}, which no state dict has")
                    })?;
                    self.push(value);
                }
            }
        }
    }

    /// The new value that an opcode pushes, if it is one of those.
    fn value(&mut self, opcode: u8) -> Result<Option<Value>, String> {
        Ok(Some(match opcode {
            b'N' => Value::None,
            0x88 => Value::Bool(true),
            0x89 => Value::Bool(false),
            b'K' => Value::Int(u8::from_le_bytes(self.array()?).into()),
            b'M' => Value::Int(u16::from_le_bytes(self.array()?).into()),
            b'J' => Value::Int(i32::from_le_bytes(self.array()?).into()),
            0x8a => {
                let [length] = self.array()?;
                Value::Int(long(self.take(length.into())?)?)
            }
            b'G' => Value::Float(f64::from_be_bytes(self.array()?)),
            b'U' | 0x8c | b'C' | b'X' | b'T' | b'B' => {
                let length = self.unsigned(matches!(opcode, b'X' | b'T' | b'B'))?;
                Value::Text(String::from_utf8_lossy(self.take(length as usize)?).into_owned())
            }
            b')' => Value::Tuple(vec![]),
            b']' => Value::List(vec![]),
            b'}' => Value::Dict(vec![]),
            b't' => Value::Tuple(self.pop_marked()?),
            0x85..=0x87 => Value::Tuple(self.pop_many(usize::from(opcode - 0x84))?),
            b'l' => Value::List(self.pop_marked()?),
            b'd' => Value::Dict(pairs(&self.pop_marked()?)?),
            b'c' => Value::Global(format!("{}.{}", self.line()?, self.line()?)),
            _ => return Ok(None),
        }))
    }

    /// A call of `callable`, understood but not made.
    fn call(&mut self, callable: Id, args: Id) -> Result<(), String> {
        let (Value::Global(name), Value::Tuple(args)) = (&self.values[callable], &self.values[args]) else {
            return Err("something is called that is no function".into());
        };
        let value = match name.as_str() {
            "collections.OrderedDict" => {
                let items = match args.first().map(|&id| &self.values[id]) {
                    Some(Value::List(items)) => items.as_slice(),
                    _ => &[],
                };
                let pair = |&id: &Id| match &self.values[id] {
                    Value::Tuple(pair) | Value::List(pair) if pair.len() == 2 => Ok((pair[0], pair[1])),
                    _ => Err("a dictionary is made of something that is not pairs".to_string()),
                };
                Value::Dict(items.iter().map(pair).collect::<Result<_, _>>()?)
            }
            "torch._utils._rebuild_tensor_v2" | "torch._utils._rebuild_tensor" => Value::Tensor(args.clone()),
            "torch._utils._rebuild_parameter" if !args.is_empty() => {
                self.stack.push(args[0]);
                return Ok(());
            }
            _ => Value::Object(name.clone()),
        };
        self.push_copy(value)
    }

    /// What PyTorch keeps outside of the pickle: storages, and in old files classes with their source text.
    fn persistent(&mut self, id: Id) -> Result<(), String> {
        let Value::Tuple(items) = &self.values[id] else {
            return Err("a storage is named by something that is no tuple".into());
        };
        let kind = items.first().map(|&id| &self.values[id]);
        let value = match (kind, items.get(1)) {
            (Some(Value::Text(kind)), _) if kind == "storage" => Value::Storage(items.clone()),
            (Some(Value::Text(kind)), Some(&class)) if kind == "module" => {
                self.stack.push(class);
                return Ok(());
            }
            _ => return Err("a storage is named in an unknown way".into()),
        };
        self.push_copy(value)
    }

    fn push(&mut self, value: Value) {
        self.stack.push(self.values.len());
        self.values.push(value);
    }

    /// Pushes a copy of what the pickle has written before. It may name the same thing again in two bytes, so without a bound a
    /// short pickle could ask for any amount of memory.
    fn push_copy(&mut self, value: Value) -> Result<(), String> {
        self.copied = self.copied.saturating_add(value.extent());
        if self.copied > COPIES.saturating_mul(self.at) {
            return Err("the pickle repeats its parts until they take far more memory than itself".into());
        }
        self.push(value);
        Ok(())
    }

    fn top(&self) -> Result<Id, String> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let top = self.stack.get(floor..).and_then(<[Id]>::last).copied();
        top.ok_or_else(|| "the pickle's stack is empty".to_string())
    }

    fn pop(&mut self) -> Result<Id, String> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    fn pop_many(&mut self, count: usize) -> Result<Vec<Id>, String> {
        let mut items = (0..count).map(|_| self.pop()).collect::<Result<Vec<_>, _>>()?;
        items.reverse();
        Ok(items)
    }

    fn pop_marked(&mut self) -> Result<Vec<Id>, String> {
        let mark = self.marks.pop().ok_or("a pickle's mark is missing")?;
        Ok(self.stack.split_off(mark))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], String> {
        let rest = &self.bytes[self.at..];
        let taken = rest.get(..length).ok_or("the pickle ends too early")?;
        self.at += length;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        Ok(self.take(N)?.try_into().expect("as many bytes as asked for"))
    }

    /// A number of four bytes, or of one.
    fn unsigned(&mut self, wide: bool) -> Result<u32, String> {
        if wide {
            return Ok(u32::from_le_bytes(self.array()?));
        }
        let [number] = self.array()?;
        Ok(number.into())
    }

    fn line(&mut self) -> Result<String, String> {
        let rest = &self.bytes[self.at..];
        let length = rest.iter().position(|&byte| byte == b'\n').ok_or("the pickle ends too early")?;
        self.at += length + 1;
        Ok(String::from_utf8_lossy(&rest[..length]).trim_end_matches('\r').to_string())
    }
}

fn pairs(items: &[Id]) -> Result<Vec<(Id, Id)>, String> {
    match items.as_chunks() {
        (pairs, []) => Ok(pairs.iter().map(|&[key, value]| (key, value)).collect()),
        _ => Err("a dictionary's key has no value".into()),
    }
}

/// A little-endian integer in two's complement.
fn long(bytes: &[u8]) -> Result<i128, String> {
    if bytes.len() > 16 {
        return Err(format!("an integer of {} bytes", bytes.len()));
    }
    let negative = bytes.last().is_some_and(|&byte| byte >= 0x80);
    let mut wide = [if negative { 0xff } else { 0 }; 16];
    wide[..bytes.len()].copy_from_slice(bytes);
    Ok(i128::from_le_bytes(wide))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_values_are_read() {
        // (1, [True, None], {"a": -2}), as Python's protocol 2 writes it.
        let bytes = b"\x80\x02K\x01]q\x00(\x88Ne}q\x01X\x01\x00\x00\x00aJ\xfe\xff\xff\xffs\x87.rest";
        let pickle = Pickle::read(bytes).unwrap();
        assert_eq!(pickle.length, bytes.len() - 4);
        let Value::Tuple(items) = pickle.root() else { panic!("{:?}", pickle.root()) };
        assert_eq!(pickle.value(items[0]), &Value::Int(1));
        let Value::List(list) = pickle.value(items[1]) else { panic!() };
        assert_eq!((pickle.value(list[0]), pickle.value(list[1])), (&Value::Bool(true), &Value::None));
        let Value::Dict(dict) = pickle.value(items[2]) else { panic!() };
        assert_eq!(pickle.value(dict[0].0), &Value::Text("a".into()));
        assert_eq!(pickle.value(dict[0].1), &Value::Int(-2));
    }

    #[test]
    fn a_call_is_remembered_by_name_and_not_made() {
        let pickle = Pickle::read(b"cos\nsystem\n(X\x08\x00\x00\x00rm -rf /tR.").unwrap();
        assert_eq!(pickle.root(), &Value::Object("os.system".into()));
    }

    #[test]
    fn long_integers_have_a_sign() {
        assert_eq!(long(&[]), Ok(0));
        assert_eq!(long(&[0xff]), Ok(-1));
        assert_eq!(long(&[0x80, 0x00]), Ok(128));
        assert!(long(&[0; 17]).is_err());
    }

    #[test]
    fn cut_off_and_ill_formed_pickles_are_errors() {
        let whole = b"\x80\x02(K\x01K\x02}q\x00X\x01\x00\x00\x00aK\x05scollections\nOrderedDict\n)Rt.";
        assert!(Pickle::read(whole).is_ok());
        for length in 0..whole.len() {
            assert!(Pickle::read(&whole[..length]).is_err(), "{length}");
        }
        for bad in [
            b".".as_slice(),
            b"t.",
            b"h\x07.",
            b"K\x01s.",
            b"(K\x01a.",
            b"\x80\x09N.",
            b"\xf0.",
            b"K\x01K\x02R.",
        ] {
            assert!(Pickle::read(bad).is_err(), "{bad:?}");
        }
    }

    /// What a pickle holds besides the values themselves, in bytes.
    fn extent(pickle: &Pickle) -> usize {
        pickle.values().map(Value::extent).sum()
    }

    #[test]
    fn a_part_that_is_repeated_without_end_is_an_error() {
        let (items, times) = (20_000, 20_000);
        let long = |open: &[u8], item: &[u8], close: &[u8]| [open, &item.repeat(items), close].concat();
        let text = long(&[b"X".as_slice(), &(items as u32).to_le_bytes()].concat(), b"x", b"");
        let cases = [
            // A storage's tuple, a tensor's arguments, a dictionary's pairs, and a class's name in both protocols.
            (long(b"(X\x07\x00\x00\x00storage", b"N", b"tq\x000"), b"h\x00Q0".to_vec()),
            (long(b"ctorch._utils\n_rebuild_tensor_v2\nq\x010(", b"N", b"tq\x000"), b"h\x01h\x00R0".to_vec()),
            (
                long(b"ccollections\nOrderedDict\nq\x010NN\x86q\x020(", b"h\x02", b"l\x85q\x000"),
                b"h\x01h\x00R0".to_vec(),
            ),
            (long(b"c", b"x", b"\nf\nq\x000)q\x010"), b"h\x00h\x01R0".to_vec()),
            ([text.as_slice(), b"q\x000"].concat(), b"h\x00h\x00\x930".to_vec()),
        ];
        for (once, again) in cases {
            let pickle = |times| [once.as_slice(), &again.repeat(times), b"N."].concat();
            // Once is no fault.
            Pickle::read(&pickle(1)).unwrap();
            let reason = Pickle::read(&pickle(times)).unwrap_err();
            assert!(reason.contains("repeats its parts"), "{reason}");
        }
        // A module's class is not copied at all.
        let mut module = long(b"(X\x06\x00\x00\x00modulec", b"x", b"\nf\ntq\x000");
        module.extend(b"h\x00Q0".repeat(times));
        module.extend(b"N.");
        assert!(extent(&Pickle::read(&module).unwrap()) < 2 * module.len());
    }

    #[test]
    fn deep_nesting_and_cycles_do_no_harm() {
        let mut deep = vec![b')'];
        deep.extend(std::iter::repeat_n(0x85, 1_000_000));
        deep.push(b'.');
        drop(Pickle::read(&deep).unwrap());
        // A list that holds itself.
        let pickle = Pickle::read(b"]q\x00h\x00a.").unwrap();
        assert_eq!(pickle.root(), &Value::List(vec![0]));
    }
}
