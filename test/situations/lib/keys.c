// keys.c: takes every pthread key before the program starts.

#include <pthread.h>

__attribute__((constructor)) static void take_them_all(void) {
  pthread_key_t key;
  while (pthread_key_create(&key, NULL) == 0) {
  }
}
