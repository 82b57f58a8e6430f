/* Keras chooses XLA (jit_compile="auto", the default) and cuDNN (LSTM, GRU) as soon as a GPU is listed, and a simulated GPU can
 * run neither. keras_on_simulated_gpu.py makes these choices "no"; this file runs it, without needing anything of Python at
 * build time. It works under `python -I -S`, where no site hook would. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#include "simulator.h"


static bool done;

static int run(void *unused) {
    (void)unused;
    int (*run_string)(const char *, void *) = (int (*)(const char *, void *))dlsym(RTLD_DEFAULT, "PyRun_SimpleStringFlags");
    char path[PATH_MAX], code[2 * PATH_MAX + 200];
    if (done || !run_string || !library_beside_core(path, sizeof path, "keras_on_simulated_gpu.py")) return 0;
    done = true;
    /* In a namespace of its own: the program's __main__ is left as it was. */
    snprintf(code, sizeof code,
             "exec(compile(__import__('pathlib').Path(r'''%s''').read_bytes(), r'''%s''', 'exec'), {'__name__': 'gpudiag_keras'})",
             path, path);
    run_string(code, NULL);
    return 0;
}

void keras_choose_for_simulated_gpu(bool python_may_run_now) {
    if (done) return;
    int (*is_initialised)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "Py_IsInitialized");
    int (*holds_gil)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "PyGILState_Check");
    int (*add_pending)(int (*)(void *), void *) = (int (*)(int (*)(void *), void *))dlsym(RTLD_DEFAULT, "Py_AddPendingCall");
    if (!is_initialised || !holds_gil || !add_pending || !is_initialised()) return;
    /* During the import of TensorFlow (inside dlopen) Python may not run here: another thread could take the interpreter
     * lock and wait for the loader's. So the main thread is asked to do it next. Where it did not come to that by cuInit,
     * it is done there, if this thread holds the interpreter lock anyway. */
    static bool asked;
    if (python_may_run_now && holds_gil()) run(NULL);
    else if (!asked) asked = add_pending(run, NULL) == 0;
}
