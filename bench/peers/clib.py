"""libmuon through ctypes: just enough of include/muon/muon.h to compare it with torch.

Structs are mirrored field by field; agreement.py compares the mirror with the header, and the
library answers MUON_E_VERSION to a struct of a size it does not know. Settings of a group are set
by name through muon_group_set, so no enum is repeated here. Tensors are f32 and contiguous: torch
tensors on the CPU or NumPy arrays.
"""

import ctypes as c

MAX_DIMS = 8
F32, RULE_MUON, RULE_ADAMW = 1, 0, 1
UNKNOWN = -1  # MUON_UNKNOWN


class Error(RuntimeError):
    pass


class Param(c.Structure):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("name", c.c_char_p),
        ("ndim", c.c_int),
        ("shape", c.c_int64 * MAX_DIMS),
        ("matrices", c.c_char_p),
        ("group", c.c_int),
        ("expert", c.c_int),
        ("dtype", c.c_int),
        ("grad_dtype", c.c_int),
        ("copy_dtype", c.c_int),
        ("mesh", c.c_char_p),
        ("placement", c.c_char_p),
        ("boxes", c.c_void_p),
        ("nboxes", c.c_size_t),
        ("ranges", c.c_void_p),
        ("nranges", c.c_size_t),
    ]


class Group(c.Structure):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("name", c.c_char_p),
        ("rule", c.c_int),
        ("lr", c.c_double),
        ("weight_decay", c.c_double),
        ("clip", c.c_int),
        ("momentum", c.c_double),
        ("nesterov", c.c_int),
        ("momentum_form", c.c_int),
        ("momentum_dtype", c.c_int),
        ("lr_mode", c.c_int),
        ("lr_scale", c.c_double),
        ("coefficients", c.c_int),
        ("ns_steps", c.c_int),
        ("algorithm", c.c_int),
        ("ns_eps", c.c_double),
        ("eps_mode", c.c_int),
        ("normalization", c.c_int),
        ("norm_scale", c.c_double),
        ("polar_lower", c.c_double),
        ("polar_safety", c.c_double),
        ("polar_cushion", c.c_double),
        ("custom", c.c_void_p),
        ("ncustom", c.c_int),
        ("beta1", c.c_double),
        ("beta2", c.c_double),
        ("adam_eps", c.c_double),
        ("adam_eps_mode", c.c_int),
        ("decay_form", c.c_int),
        ("cautious_decay", c.c_int),
        ("bias_correction", c.c_int),
        ("equalize", c.c_int),
        ("adaptive", c.c_int),
        ("renormalize", c.c_int),
        ("second_moment", c.c_int),
        ("second_beta", c.c_double),
        ("second_eps", c.c_double),
        ("second_eps_mode", c.c_int),
        ("update_norm", c.c_int),
    ]


class Machine(c.Structure):
    _fields_ = [
        ("flops", c.c_double),
        ("node_bandwidth", c.c_double),
        ("bandwidth", c.c_double),
        ("ranks_per_node", c.c_int64),
        ("latency", c.c_double),
        ("processor_bandwidth", c.c_double),
    ]


class Config(c.Structure):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("groups", c.POINTER(Group)),
        ("ngroups", c.c_size_t),
        ("attention", c.c_void_p),
        ("nattention", c.c_size_t),
        ("qk_threshold", c.c_double),
        ("qk_log_only", c.c_int),
        ("clip_norm", c.c_double),
        ("wire", c.c_int),
        ("seed", c.c_uint64),
        ("missing_grad", c.c_int),
        ("allow_no_muon", c.c_int),
        ("threads", c.c_int),
        ("backend", c.c_char_p),
        ("workspace_budget", c.c_int64),
        ("orthogonalize", c.c_void_p),
        ("grad_consumed", c.c_void_p),
        ("log", c.c_void_p),
        ("user", c.c_void_p),
        ("comm", c.c_void_p),
        ("nranks", c.c_int64),
        ("meshes", c.c_void_p),
        ("nmeshes", c.c_size_t),
        ("machine", Machine),
        ("path", c.c_int),
        ("in_flight", c.c_int),
        ("timeout", c.c_double),
        ("offload_dir", c.c_char_p),
        ("offload_budget", c.c_int64),
        ("offload_cached", c.c_int64),
        ("state", c.c_void_p),
        ("grad_fetch", c.c_void_p),
        ("grad_budget", c.c_int64),
        ("team_max", c.c_int64),
        ("team_min", c.c_int64),
        ("skip_norm", c.c_double),
        ("background", c.c_int),
        ("peers_max", c.c_int64),
    ]


class Buffers(c.Structure):
    _fields_ = [("param", c.c_void_p), ("grad", c.c_void_p), ("copy", c.c_void_p)]


class StepArgs(c.Structure):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("buffers", c.POINTER(Buffers)),
        ("max_logits", c.c_void_p),
        ("grad_scale", c.c_double),
        ("grad_norm", c.c_double),
        ("finite", c.c_int),
    ]


MIRRORS = {
    "muon_param": Param,
    "muon_group": Group,
    "muon_machine": Machine,
    "muon_config": Config,
    "muon_buffers": Buffers,
    "muon_step_args": StepArgs,
}


def address(tensor):
    """Of a contiguous f32 torch tensor or NumPy array."""
    if not str(tensor.dtype).endswith("float32"):
        raise TypeError(f"f32 expected, got {tensor.dtype}")
    if hasattr(tensor, "data_ptr"):
        contiguous, pointer = tensor.is_contiguous(), tensor.data_ptr()
    else:
        contiguous, pointer = tensor.flags["C_CONTIGUOUS"], tensor.ctypes.data
    if not contiguous:
        raise ValueError("contiguous tensor expected")
    return pointer


class Library:
    def __init__(self, path):
        self.dll = c.CDLL(str(path))
        for name, result, *args in (
            ("muon_version", c.c_char_p),
            ("muon_last_error", c.c_char_p),
            ("muon_status_name", c.c_char_p, c.c_int),
            ("muon_param_init", None, c.POINTER(Param), c.c_size_t),
            ("muon_group_init", None, c.POINTER(Group), c.c_size_t),
            ("muon_group_set_preset", c.c_int, c.POINTER(Group), c.c_char_p),
            ("muon_group_set", c.c_int, c.POINTER(Group), c.c_char_p, c.c_char_p),
            ("muon_config_init", None, c.POINTER(Config), c.c_size_t),
            ("muon_create", c.c_int, c.POINTER(c.c_void_p), c.POINTER(Config), c.POINTER(Param),
             c.c_size_t),
            ("muon_destroy", None, c.c_void_p),
            ("muon_step_args_init", None, c.POINTER(StepArgs), c.c_size_t),
            ("muon_step", c.c_int, c.c_void_p, c.POINTER(StepArgs), c.c_void_p),
            ("muon_ortho_create", c.c_int, c.POINTER(c.c_void_p), c.c_int64, c.c_int64, c.c_int64,
             c.POINTER(Group), c.c_int, c.c_char_p),
            ("muon_ortho_run", c.c_int, c.c_void_p, c.c_void_p, c.c_void_p),
            ("muon_ortho_destroy", None, c.c_void_p),
        ):
            function = getattr(self.dll, name)
            function.restype, function.argtypes = result, args

    def check(self, status):
        if status != 0:
            name = self.dll.muon_status_name(status).decode()
            raise Error(f"{name}: {self.dll.muon_last_error().decode()}")

    def new(self, struct, init):
        value = struct()
        init(c.byref(value), c.sizeof(value))
        return value

    def group(self, preset=None, adamw=False, **settings):
        """A group with a preset, then settings by name."""
        group = self.new(Group, self.dll.muon_group_init)
        group.rule = RULE_ADAMW if adamw else RULE_MUON
        if preset:
            self.check(self.dll.muon_group_set_preset(group, preset.encode()))
        for field, value in settings.items():
            self.check(self.dll.muon_group_set(group, field.encode(), str(value).encode()))
        return group


class Ortho:
    """out = ortho(x): orthogonalizes a matrix, or each matrix of a 3-D tensor, into `out`."""

    def __init__(self, library, shape, threads=0, **settings):
        self.library, self.handle = library, c.c_void_p()
        batch, rows, cols = (1, *shape)[-3:]
        library.check(
            library.dll.muon_ortho_create(
                self.handle, batch, rows, cols, library.group(**settings), threads, None
            )
        )

    def __call__(self, out, x):
        self.library.check(
            self.library.dll.muon_ortho_run(self.handle, address(out), address(x))
        )
        return out

    def __del__(self):
        self.library.dll.muon_ortho_destroy(self.handle)


class Optimizer:
    """One group over the given tensors, updated in place from `grads` by step()."""

    def __init__(self, library, params, grads, group, threads=0):
        self.library, self.handle = library, c.c_void_p()
        self.keep = params, grads, group  # the library holds addresses into these
        config = library.new(Config, library.dll.muon_config_init)
        config.groups, config.ngroups = c.pointer(group), 1
        config.allow_no_muon, config.threads = int(group.rule != RULE_MUON), threads
        described = (Param * len(params))()
        self.buffers = (Buffers * len(params))()
        for i, (param, grad) in enumerate(zip(params, grads)):
            if tuple(param.shape) != tuple(grad.shape):
                raise ValueError(f"param {i}: weight {param.shape}, gradient {grad.shape}")
            library.dll.muon_param_init(described[i], c.sizeof(Param))
            described[i].name, described[i].ndim = f"p{i}".encode(), len(param.shape)
            described[i].shape[: len(param.shape)] = list(param.shape)
            described[i].group, described[i].dtype, described[i].grad_dtype = 0, F32, F32
            self.buffers[i] = Buffers(address(param), address(grad), None)
        self.args = library.new(StepArgs, library.dll.muon_step_args_init)
        self.args.buffers = self.buffers
        library.check(
            library.dll.muon_create(self.handle, config, described, len(params))
        )

    def step(self, finite=UNKNOWN):
        """finite 1: the caller knows that no gradient has a NaN or infinity."""
        self.args.finite = finite
        self.library.check(self.library.dll.muon_step(self.handle, self.args, None))

    def __del__(self):
        self.library.dll.muon_destroy(self.handle)
