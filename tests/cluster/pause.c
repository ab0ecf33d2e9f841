/// The only program in the test images; static, so that an image needs nothing else.
///   pause                    waits for SIGTERM
///   pause sleep SECONDS      exits 0 after that time
///   pause write FILE BYTES   writes a file and waits for SIGTERM
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void on_signal(int number) {
  _exit(number == SIGALRM ? 0 : 128 + number);
}

static int write_file(const char* path, long bytes) {
  static char block[4096];
  int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file < 0) {
    return 1;
  }
  memset(block, 'x', sizeof block);
  while (bytes > 0) {
    long part = bytes < (long)sizeof block ? bytes : (long)sizeof block;
    if (write(file, block, (size_t)part) != part) {
      return 1;
    }
    bytes -= part;
  }
  return close(file);
}

int main(int argc, char** argv) {
  // The kernel ignores signals of process 1 that have no handler.
  signal(SIGTERM, on_signal);
  signal(SIGINT, on_signal);
  signal(SIGALRM, on_signal);
  if (argc == 3 && strcmp(argv[1], "sleep") == 0) {
    alarm((unsigned)atoi(argv[2]));
  }
  if (argc == 4 && strcmp(argv[1], "write") == 0 && write_file(argv[2], atol(argv[3])) != 0) {
    return 1;
  }
  for (;;) {
    pause();
  }
}
