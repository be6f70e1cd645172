/* The module libmuon._core. */
#include "core.h"

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "libmuon._core",
    .m_doc = "libmuon's C objects. Private: use the names in libmuon.",
    .m_size = -1,
};

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC PyInit__core(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (!module) return NULL;
    if (PyModule_AddStringConstant(module, "version", muon_version()) < 0 ||
        core_add_fields(module) < 0 || core_add_plan(module) < 0 || core_add_route(module) < 0 ||
        core_add_transport(module) < 0 || core_add_optimizer(module) < 0 ||
        core_add_checkpoint(module) < 0)
        Py_CLEAR(module);
    return module;
}
