/* A shared object with a soname and a dependency, and nothing else (CMakeLists.txt says which). */
typedef int no_translation_unit_is_empty;
